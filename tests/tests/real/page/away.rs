//! An allocator goes away while a page shows it. The page says so at once, keeps the last figures with their age, and
//! recovers when the allocator is back.

use super::{CONFIG, in_row, open};
use scenarios::process::Allocator;
use serde_json::json;
use std::time::Duration;

/// How soon the page must say that the allocator is gone: twice the time between two looks. A connection that breaks is
/// noticed as it breaks.
const SOON: Duration = Duration::from_secs(2);

#[test]
fn an_allocator_that_is_gone_is_said_at_once_and_its_figures_stay() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let browser = open(&allocator);
    let level = in_row("vendor/rest", ".level");
    browser.wait(&format!(
        "{level}.textContent === '1,000 of 1,000' && document.querySelector('#live').textContent"
    ));
    assert_eq!(browser.eval("document.querySelector('#away').checkVisibility()"), json!(false));

    let mut came_back = None;
    let allocator = allocator.restart_after(|_| {
        let took = browser.wait("document.querySelector('#away').checkVisibility()");
        assert!(took < SOON, "{took:?}");
        let said = browser.eval("document.querySelector('#away').textContent").to_string();
        assert!(said.contains("cannot be reached") && said.contains("What is shown is"), "{said}");
        assert_eq!(browser.eval("document.querySelector('#away').role"), json!("alert"));
        assert_eq!(browser.eval(&format!("{level}.textContent")), json!("1,000 of 1,000"));
        assert!(
            browser.eval("Number(getComputedStyle(document.querySelector('main')).opacity)").as_f64()
                < Some(0.9)
        );
        browser.wait("/is [2-9] s old/.test(document.querySelector('#away').textContent)");
        browser.picture("away", "light");
        came_back = Some(());
    });
    assert!(came_back.is_some());
    browser.wait("!document.querySelector('#away').checkVisibility()");
    browser.wait("document.querySelector('#events').textContent.includes('was started again')");
    // The allocator was not started with `--fresh`, so it is in quarantine and says so.
    browser.wait("document.querySelector('#health').textContent.includes('in quarantine')");
    browser.wait(&format!("{}.textContent.startsWith('quarantine')", in_row("vendor/rest", ".badges")));
    drop(allocator);
}
