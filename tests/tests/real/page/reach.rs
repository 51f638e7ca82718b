//! Users without a mouse, or without sight: the keyboard reaches every control in order, and every element has a role
//! and a name.

use super::{Browser, CONFIG, in_row, open, spend};
use scenarios::process::Allocator;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Script that describes the element with the focus.
const FOCUS: &str = "(() => { const e = document.activeElement; return e === document.body ? '' : \
    `${e.tagName} ${e.id || e.getAttribute('aria-label') || e.textContent.trim().slice(0, 40)}`; })()";

/// Script that describes every visible control of the page.
const USABLE: &str = "[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex=\"0\"]')]\
    .filter((e) => e.checkVisibility()).map((e) => `${e.tagName} ${e.id || e.getAttribute('aria-label') || e.textContent.trim().slice(0, 40)}`)";

/// Goes once through the page with the tab key, and returns what had the focus.
fn round(browser: &Browser) -> Vec<String> {
    browser.eval("document.querySelector('.skip').focus()");
    let mut seen = vec![];
    loop {
        let focus = browser.eval(FOCUS).as_str().expect("a text").to_owned();
        if focus.is_empty() || seen.contains(&focus) {
            return seen;
        }
        assert!(seen.len() < 200, "{seen:?}");
        seen.push(focus);
        browser.press("Tab");
    }
}

fn usable(browser: &Browser) -> Vec<String> {
    let usable = browser.eval(USABLE);
    usable.as_array().expect("a list").iter().map(|name| name.as_str().expect("a text").to_owned()).collect()
}

/// Returns the role and name of each element, as a screen reader gets them.
fn tree(browser: &Browser) -> Vec<(String, String)> {
    let tree = browser.call("Accessibility.getFullAXTree", json!({}));
    let nodes =
        tree["nodes"].as_array().expect("a list").iter().filter(|node| node["ignored"] == json!(false));
    let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
    nodes.map(|node| (text(&node["role"]), text(&node["name"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_reaches_everything_and_everything_has_a_name() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    spend(&allocator, "export", Some("ann"), 1).await;
    let browser = open(&allocator);
    assert_eq!(round(&browser), usable(&browser), "the Tab key follows the order of reading");
    let things = tree(&browser);
    let roles: BTreeSet<&str> = things.iter().map(|(role, _)| role.as_str()).collect();
    for role in [
        "banner",
        "main",
        "complementary",
        "table",
        "columnheader",
        "rowheader",
        "meter",
        "searchbox",
        "combobox",
        "link",
    ] {
        assert!(roles.contains(role), "{role} is not among {roles:?}");
    }
    for (role, name) in [
        ("rowheader", "vendor/rest 1,000 each 1d from first use"),
        ("cell", "shadow mode"),
        ("meter", "left"),
        ("cell", "1,000 of 1,000"),
        ("cell", "9 in 1 pool of 10"),
    ] {
        assert!(
            things.contains(&(role.to_owned(), name.to_owned())),
            "{role} {name} is not among {things:?}"
        );
    }

    // To one limit, through a form and back, without a mouse.
    browser.press("/");
    assert_eq!(browser.eval("document.activeElement.id"), json!("filter"));
    browser.write("vendor");
    browser.wait("document.querySelectorAll('tr[data-limit]').length === 1");
    browser.eval(&format!("{}.focus()", in_row("vendor/rest", "a")));
    browser.press("Enter");
    browser.wait(
        "document.activeElement.tagName === 'H1' && document.activeElement.textContent === 'vendor/rest'",
    );
    let here = usable(&browser);
    assert!(here.iter().any(|name| name == "BUTTON Pause…"), "{here:?}");
    assert_eq!(round(&browser), here);
    expect_names(&tree(&browser));
    browser
        .eval("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Pause…').focus()");
    browser.press("Enter");
    browser.wait("document.activeElement.name === 'for'");
    expect_names(&tree(&browser));
    browser.press("Enter");
    browser.wait("document.activeElement.textContent === 'Pause'");
    browser.press("Escape");
    browser.wait("!document.querySelector('dialog') && document.activeElement.textContent === 'Pause…'");
    browser
        .eval("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Pause…').focus()");
    for _ in 0..3 {
        browser.press("Enter");
        browser.eval("new Promise((done) => requestAnimationFrame(done))");
    }
    browser.wait("document.querySelector('.title .badges').textContent === 'paused'");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Asserts that every control has a name.
#[track_caller]
fn expect_names(things: &[(String, String)]) {
    for (role, name) in things {
        let is_used =
            ["button", "link", "textbox", "searchbox", "combobox", "meter", "dialog", "table", "image"];
        assert!(!is_used.contains(&role.as_str()) || !name.is_empty(), "a {role} has no name");
    }
}
