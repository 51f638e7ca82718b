//! Five hundred limits, ten thousand keys, a thousand nodes: answers and the page stay small and quick. Rows keep their
//! places, and none that needs an operator is hidden.

use super::{Browser, ask, in_row, open};
use lessor_protocol::CLOCK;
use lessor_protocol::wire::{AskBody, LeasesRequest};
use reqwest::Method;
use scenarios::process::Allocator;
use serde_json::json;
use std::fmt::Write as _;

const NODES: u64 = 1_000;

/// Keys that each node asks for, and no other node.
const KEYS: u64 = 10;

/// Part of the time for which the page may be busy, with a look each second, on a machine with other work. A user who
/// types would notice more.
const BUSY_PART: f64 = 0.3;

/// Rows that the page shows at once.
const ROWS: usize = 100;

/// Returns the configuration of so many limits, the first of which has keys.
fn config(limits: usize) -> String {
    let mut config = "[store]\nkind = \"memory\"\n".to_owned();
    for number in 0..limits {
        let rule = "{ kind = \"token_bucket\", capacity = 100, refill = 100, per = \"1h\" }";
        let _ = write!(
            config,
            "\n[[limit]]\nname = \"partner/{number:03}\"\nkeyed = {}\nrules = [{rule}]\n",
            number == 0
        );
    }
    config
}

/// Returns the seconds for which the page has been busy.
fn busy(browser: &Browser) -> f64 {
    let metrics = browser.call("Performance.getMetrics", json!({}));
    let mut metrics = metrics["metrics"].as_array().expect("a list").iter();
    let tasks =
        metrics.find(|metric| metric["name"] == "TaskDuration").expect("the browser counts task time");
    tasks["value"].as_f64().expect("seconds")
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_limits_ten_thousand_keys_and_a_thousand_nodes_are_still_a_page() {
    let allocator = Allocator::start(&config(500), "127.0.0.1:0", true);
    for node in 0..NODES {
        let key = |key| AskBody {
            limit: "partner/000".to_owned(),
            key: Some(format!("key-{node}-{key}")),
            want: 2,
            demand: key,
            ..AskBody::default()
        };
        let shared = AskBody { limit: "partner/001".to_owned(), want: 1, demand: node, ..AskBody::default() };
        let asks = (0..KEYS).map(key).chain([shared]).collect();
        let (node, session) = (format!("node-{node}"), node + 1);
        let request = LeasesRequest { node, session, epoch: 0, seq: 1, rtt_ms: 1, asks };
        let request = serde_json::to_value(&request).expect("plain data");
        ask(&allocator, Method::POST, "/v1/leases", Some(request)).await;
    }
    let top = ask(&allocator, Method::GET, "/v1/limits/partner%2F000/top", None).await;
    assert_eq!((&top["pools"], &top["looked_at"]), (&json!(NODES * KEYS), &json!(NODES * KEYS)));
    assert_eq!(top["keys"].as_array().map(Vec::len), Some(20));
    assert!(top["nodes"].as_array().is_some_and(|nodes| nodes.len() <= 20), "{top}");
    assert!(top.to_string().len() < 20_000, "{} bytes", top.to_string().len());

    let browser = open(&allocator);
    browser.wait("document.querySelector('.summary').textContent.startsWith('500 limits')");
    assert_eq!(browser.eval("document.querySelectorAll('tr[data-limit]').length"), json!(ROWS));
    let before = busy(&browser);
    let start = CLOCK.now();
    browser.eval("new Promise((done) => setTimeout(done, 5000))");
    let part = (busy(&browser) - before) / CLOCK.now().since(start).as_secs_f64();
    println!("the page was busy for {part:.3} of the time");
    assert!(part < BUSY_PART, "busy for {part} of the time");
    browser.press("/");
    browser.write("partner/49");
    browser.wait("document.querySelectorAll('tr[data-limit]').length === 10");
    browser.eval("document.querySelector('#filter').value = ''; document.querySelector('#filter').dispatchEvent(new Event('input'))");
    browser.push("Show more: 400 left");
    browser.wait("document.querySelectorAll('tr[data-limit]').length === 200");
    browser.click(&in_row("partner/000", "a"));
    browser.wait("document.querySelectorAll('table.top tbody tr').length >= 20");
    browser.write("");
    browser.eval("document.querySelector('#look-up').focus()");
    browser.write("key-7-3");
    browser.press("Enter");
    browser.wait(
        "document.querySelector('[role=status]:not(.chip):not(.unseen)').textContent.startsWith('key-7-3: ')",
    );
    assert!(browser.eval("document.querySelectorAll('*').length").as_u64() < Some(3_000));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// The bug: while the focus was in a row, the page hid all limits but those that it showed already.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_begins_to_need_an_operator_shows_after_rows_that_keep_their_places() {
    let allocator = Allocator::start(&config(ROWS + 1), "127.0.0.1:0", true);
    let browser = open(&allocator);
    let names = || {
        let names =
            browser.eval("[...document.querySelectorAll('tr[data-limit]')].map((row) => row.dataset.limit)");
        serde_json::from_value::<Vec<String>>(names).expect("a list of names")
    };
    let mut expected: Vec<String> = (0..ROWS).map(|number| format!("partner/{number:03}")).collect();
    assert_eq!(names(), expected);
    browser.eval(&format!("{}.focus()", in_row("partner/050", "a")));
    ask(&allocator, Method::POST, "/v1/limits/partner%2F100/pause", Some(json!({}))).await;
    browser.wait(&in_row("partner/100", ""));
    expected.push("partner/100".to_owned());
    assert_eq!(names(), expected);
    // The row of a limit that is healthy again keeps its place, too, while the one with the focus keeps the focus.
    ask(&allocator, Method::POST, "/v1/limits/partner%2F099/pause", Some(json!({}))).await;
    ask(&allocator, Method::POST, "/v1/limits/partner%2F100/resume", None).await;
    browser.wait(&format!("{}.textContent === 'ok'", in_row("partner/100", ".badges")));
    assert_eq!(names(), expected);
    assert_eq!(browser.eval("document.activeElement.closest('tr').dataset.limit"), json!("partner/050"));
    // Once the focus is elsewhere, the page shows what needs an operator first.
    browser.eval("document.activeElement.blur()");
    browser.wait("document.querySelector('tr[data-limit]').dataset.limit === 'partner/099'");
    assert_eq!(names().len(), ROWS);
}
