//! The page for operators, in a real browser with a real allocator. It shows what the API says, does what the operator
//! asks, loads nothing from other servers, and says when no allocator is there.

mod away;
mod browser;
mod crowd;
mod reach;
mod sign;

use browser::Browser;
use lessor_protocol::wire::{AskBody, LeasesRequest};
use reqwest::{Client, Method, StatusCode};
use scenarios::fleet::eventually;
use scenarios::process::{Allocator, lessor};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

const CONFIG: &str = r#"
[store]
kind = "memory"

[[limit]]
name = "vendor/rest"
rules = [{ kind = "fixed_window", limit = 1000, per = "24h", anchor = "first_use" }]

[[limit]]
name = "export"
keyed = true
rules = [{ kind = "token_bucket", capacity = 10, refill = 1, per = "1h" }]

[[limit]]
name = "trial"
shadow = true
rules = [{ kind = "sliding_window", limit = 50, per = "1s" }]
"#;

/// How soon a change must show on the page.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A key that would be a picture and run a script if the page took it for markup.
const HOSTILE: &str = "<img src=x onerror=\"document.title='taken'\">";

/// Sends a request and returns the answer of the allocator.
async fn ask(allocator: &Allocator, method: Method, path: &str, body: Option<Value>) -> Value {
    let http = Client::builder().no_proxy().build().expect("a client");
    let request = http.request(method, format!("{}{path}", allocator.url));
    let request = if let Some(body) = &body { request.json(body) } else { request };
    let answer = request.send().await.expect("the server answers");
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    answer.json().await.expect("JSON")
}

/// Sends an exchange of a node that wants permits, and has spent so many.
async fn exchange(allocator: &Allocator, seq: u64, place: (&str, Option<&str>), want: u64, spent_total: u64) {
    let (limit, key) = (place.0.to_owned(), place.1.map(str::to_owned));
    let body = AskBody { limit, key, want, waiting: want, spent_total, ..AskBody::default() };
    let request =
        LeasesRequest { node: "node-1".to_owned(), session: 7, epoch: 0, seq, rtt_ms: 1, asks: vec![body] };
    let request = serde_json::to_value(&request).expect("plain data");
    ask(allocator, Method::POST, "/v1/leases", Some(request)).await;
}

/// Has a node lease permits, report in its next exchange that all are spent, and ask for no more.
async fn spend(allocator: &Allocator, limit: &str, key: Option<&str>, permits: u64) {
    exchange(allocator, 1, (limit, key), permits, 0).await;
    exchange(allocator, 2, (limit, key), 0, permits).await;
}

/// Opens the page of `allocator` in a browser, and waits until it has figures.
fn open(allocator: &Allocator) -> Browser {
    let browser = Browser::open(&format!("{}/", allocator.url));
    browser.wait("document.querySelector('tr[data-limit]')");
    browser
}

/// Returns the script that finds a part of a limit's row in the table.
fn in_row(limit: &str, part: &str) -> String {
    format!("document.querySelector('tr[data-limit=\"{limit}\"] {part}')")
}

/// Asserts that the page reported no problem and loaded nothing from other servers.
#[track_caller]
fn expect_clean(browser: &Browser, allocator: &Allocator) {
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let requests = browser.requests();
    assert!(requests.len() > 10, "{requests:?}");
    for url in requests {
        assert!(url.starts_with(&format!("{}/", allocator.url)), "{url} is not the allocator's");
    }
}

/// The figures of an idle limit are those of the API, in the table and on the limit's own page. Names are shown as they
/// are.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_what_the_allocator_says() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    spend(&allocator, "vendor/rest", None, 123).await;
    spend(&allocator, "export", Some(HOSTILE), 3).await;
    let browser = open(&allocator);
    let limit = ask(&allocator, Method::GET, "/v1/limits/vendor/rest", None).await;
    assert_eq!((&limit["available"], &limit["spent"]), (&json!(877), &json!(123)));
    browser.wait(&format!("{}.value === '877'", in_row("vendor/rest", ".available")));
    assert_eq!(
        browser.eval(&format!("{}.textContent", in_row("vendor/rest", ".level"))),
        json!("877 of 1,000")
    );
    assert_eq!(browser.eval(&format!("{}.textContent", in_row("trial", ".badges"))), json!("shadow mode"));
    browser.picture("limits", "light");
    browser.picture("limits", "dark");

    browser.click(&in_row("vendor/rest", "a"));
    browser.wait("document.querySelector('h1')?.textContent === 'vendor/rest'");
    let tiles = "Object.fromEntries([...document.querySelectorAll('.tile:not([hidden])')].map((tile) => \
                 [tile.querySelector('dt').textContent, tile.querySelector('data').value]))";
    let shown = browser.eval(tiles);
    for (tile, figure) in [("Spent in all", "spent"), ("Burned in all", "burned"), ("Lent", "outstanding")] {
        assert_eq!(shown[tile], json!(limit[figure].to_string()), "{shown}");
    }
    browser.wait("document.querySelectorAll('.plot canvas').length === 2");
    // The canvas must have ink: it is not enough that it exists.
    let ink = "(() => { const c = document.querySelector('.plot canvas'); \
               return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v > 0); })()";
    browser.wait(ink);

    browser.eval("location.hash = '#/limit/export'");
    let key = "[...document.querySelectorAll('table.top th')].map((cell) => cell.textContent)";
    browser.wait(&format!("{key}.includes({})", json!(HOSTILE)));
    assert_eq!(
        browser.eval("[document.querySelectorAll('img').length, document.title]"),
        json!([0, "export · Lessor"])
    );
    browser.picture("limit", "light");
    browser.picture("limit", "dark");
    expect_clean(&browser, &allocator);
}

/// A pause that is made by the API shows within a second. The page's own button pauses, too, once the operator has
/// confirmed it.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_shows_at_once_and_the_page_can_make_one() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let browser = open(&allocator);
    let paused =
        async || ask(&allocator, Method::GET, "/v1/limits/vendor/rest", None).await["paused"].clone();
    let badge = in_row("vendor/rest", ".badges");
    browser.wait(&format!("{badge}.textContent === 'ok'"));
    for round in 0..3 {
        ask(&allocator, Method::POST, "/v1/limits/vendor/rest/pause", Some(json!({}))).await;
        let took = browser.wait(&format!("{badge}.textContent === 'paused'"));
        assert!(took < AT_ONCE, "round {round}: {took:?}");
        ask(&allocator, Method::POST, "/v1/limits/vendor/rest/resume", None).await;
        browser.wait(&format!("{badge}.textContent === 'ok'"));
    }
    assert!(
        browser
            .eval("document.querySelector('#events').textContent")
            .to_string()
            .contains("vendor/rest resumed")
    );

    browser.click(&in_row("vendor/rest", "a"));
    browser.push("Pause…");
    browser.write("10m");
    browser.push("Continue");
    browser.wait("document.querySelector('dialog .confirm').textContent.includes('for 10m')");
    assert_eq!(paused().await, json!(false), "the limit is paused before the operator confirms");
    browser.push("Pause");
    browser.wait("!document.querySelector('dialog')");
    assert_eq!(paused().await, json!(true));
    browser.wait("document.querySelector('.title .badges').textContent.startsWith('paused, 9 min')");
    browser.push("Resume…");
    browser.push("Resume");
    browser.wait("document.querySelector('.title .badges').textContent === 'ok'");
    assert_eq!(paused().await, json!(false));
    expect_clean(&browser, &allocator);

    // An error shows the words of the allocator, and nothing is done.
    browser.push("Top up…");
    browser.write("-5");
    browser.push("Continue");
    browser.push("Top up");
    browser.wait("document.querySelector('dialog .problem')");
    let problem = browser.eval("document.querySelector('dialog .problem').innerText").to_string();
    for words in ["Unprocessable", "permits is", "expected a whole number", "invalid", "422"] {
        assert!(problem.contains(words), "{words}: {problem}");
    }
    browser.picture("problem", "light");
    assert_eq!(ask(&allocator, Method::GET, "/v1/limits/vendor/rest", None).await["topped_up"], json!(0));
}

/// The bug: a session whose node the allocator had forgotten had a button that said "Block null".
#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_node_has_no_button_to_block_it() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let browser = open(&allocator);
    browser.eval("location.hash = '#/limit/vendor%2Frest'");
    let row = |name: &str| {
        format!(
            "[...document.querySelectorAll('table.top tr')].find((row) => row.firstChild.textContent === '{name}')"
        )
    };
    // A session that asks no more is gone after its lease, before a busy machine has looked.
    let mut seq = 0;
    let mut shows = async |what: String| {
        eventually(&what, async || {
            seq += 1;
            exchange(&allocator, seq, ("vendor/rest", None), 10, 0).await;
            (browser.eval(&format!("Boolean({what})")) == json!(true)).then_some(())
        })
        .await;
    };
    shows(format!("{}?.querySelector('button')", row("node-1"))).await;
    // A session is forgotten only in the moment between the two looks of one answer.
    browser.eval(
        "(() => { const ask = fetch; window.fetch = async (path, how) => { const answer = await ask(path, how); \
                  if (!path.endsWith('/top')) return answer; const body = await answer.json(); \
                  for (const session of body.nodes) session.node = null; return Response.json(body); }; })()",
    );
    shows(row("(forgotten)")).await;
    assert_eq!(browser.eval(&format!("{}.querySelector('button')", row("(forgotten)"))), json!(null));
    expect_clean(&browser, &allocator);
}

/// The bug: a late report lets the count of burned permits fall, and the page threw away what it had plotted.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_report_keeps_what_was_plotted() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let browser = open(&allocator);
    browser.eval("import('/page/figures.js').then((figures) => { window.figures = figures; })");
    let plotted = |what: &str| format!("figures.history('vendor/rest'){what}");
    exchange(&allocator, 1, ("vendor/rest", None), 10, 0).await;
    browser.wait(&plotted(".at(-1).burned === 10"));
    let before = browser.eval(&plotted(".length")).as_u64();
    exchange(&allocator, 2, ("vendor/rest", None), 0, 10).await;
    browser.wait(&plotted(".at(-1).burned === 0"));
    let after = browser.eval(&plotted(".length")).as_u64();
    assert!(before > Some(1) && after > before, "{before:?} points, and then {after:?}");
}

/// What operators should mend is listed below the head, as in `lessor status`.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_file_and_warnings_are_listed_until_they_are_over() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let browser = open(&allocator);
    let warnings = "document.querySelector('#warnings')";
    assert_eq!(browser.eval(&format!("{warnings}.checkVisibility()")), json!(false));
    let read = |file: &str| {
        allocator.rewrite(file);
        allocator.running.signal(rustix::process::Signal::HUP);
    };
    read("[[limit]]\nname = 7\n");
    browser.wait(&format!("/file is refused.*line 2/.test({warnings}.textContent)"));
    browser.picture("warnings", "light");
    read(&CONFIG.replace("[store]", "[server]\nnode = \"other\"\n\n[store]"));
    browser.wait(&format!("/server.node/.test({warnings}.textContent)"));
    assert_eq!(browser.eval(&format!("{warnings}.childElementCount")), json!(1));
    read(CONFIG);
    browser.wait(&format!("!{warnings}.checkVisibility()"));
    expect_clean(&browser, &allocator);
}

/// A limit is changed as JSON, after a preview of the effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_changed_after_a_look_at_what_that_would_do() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    spend(&allocator, "vendor/rest", None, 100).await;
    let browser = open(&allocator);
    browser.eval("location.hash = '#/limit/vendor%2Frest'");
    browser.push("Change…");
    browser.wait("document.querySelector('dialog textarea')?.value.includes('\"limit\": 1000')");
    browser.eval(
        "(() => { const a = document.querySelector('dialog textarea'); \
                  a.value = a.value.replace('\"limit\": 1000', '\"limit\": 400'); })()",
    );
    browser.push("Continue");
    browser.wait("document.querySelector('dialog td')");
    let cells = browser.eval("[...document.querySelectorAll('dialog td')].map((cell) => cell.textContent)");
    assert_eq!(cells, json!(["900", "300", "0", "0"]));
    browser.push("Change it");
    browser.wait("document.querySelector('main .level')?.textContent === '300 of 400'");
    expect_clean(&browser, &allocator);
}

/// A page of another site in the same browser can change and read nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_changes_nothing() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    ask(&allocator, Method::POST, "/v1/limits/vendor/rest/pause", Some(json!({}))).await;
    let (elsewhere, url) = (Allocator::start(CONFIG, "127.0.0.1:0", true), &allocator.url);
    let browser = Browser::open("about:blank");
    let resume =
        format!("fetch('{url}/v1/limits/vendor/rest/resume', {{ method: 'POST', mode: 'no-cors' }})");
    for place in ["about:blank".to_owned(), format!("{}/v1/limits", elsewhere.url)] {
        browser.go(&place);
        browser.eval(&format!("{resume}.then(() => true, () => true)"));
        let limit = ask(&allocator, Method::GET, "/v1/limits/vendor/rest", None).await;
        assert_eq!(limit["paused"], json!(true), "from {place}");
        let figures = browser.eval(&format!("fetch('{url}/v1/limits').then(() => 'read', () => 'refused')"));
        assert_eq!(figures, json!("refused"), "from {place}");
    }
    assert!(browser.requests().iter().any(|request| request.ends_with("/resume")), "no request was tried");
}

/// `lessor status` shows the same figures in a terminal, and its exit code serves scripts.
#[test]
fn status_is_the_same_look_in_a_terminal() {
    let status = |allocator: &Allocator, more: &[&str]| {
        let mut command = Command::new(lessor());
        let ran = command
            .args(["status", "--server", &allocator.url])
            .args(more)
            .output()
            .expect("the command runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    };
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let (code, shown, _) = status(&allocator, &[]);
    assert_eq!(code, Some(0), "{shown}");
    for words in ["  ready  ", "store memory", "vendor/rest", "fixed_window 1000/1d"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let (_, json, _) = status(&allocator, &["--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json["status"]["status"], &json["limits"][2]["name"]),
        (&json!("ready"), &json!("vendor/rest"))
    );
    let (code, shown, said) = status(&allocator.restart(), &[]);
    assert_eq!(code, Some(1), "{shown}");
    assert!(
        shown.contains("in quarantine for") && said.contains("not ready: 3 limits in quarantine"),
        "{shown}{said}"
    );
}

/// Without a terminal, `lessor top` takes two looks and prints the difference.
#[tokio::test(flavor = "multi_thread")]
async fn top_prints_what_is_between_two_looks() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    ask(&allocator, Method::POST, "/v1/limits/trial/pause", Some(json!({}))).await;
    let top = |more: &[&str]| {
        let mut command = Command::new(lessor());
        let ran = command.args(["top", "--every", "200ms", "--server", &allocator.url]).args(more).output();
        let ran = ran.expect("the command runs");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).expect("text")
    };
    let shown = top(&["--once"]);
    let names: Vec<&str> = shown.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["LIMIT", "trial", "export", "vendor/rest"], "{shown}");
    let json: Value = serde_json::from_str(&top(&["--json", "--sort", "name"])).expect("JSON");
    let last = &json["limits"][2];
    assert_eq!(
        (&last["name"], &last["ceiling"], &last["spent_per_second"]),
        (&json!("vendor/rest"), &json!(1_000), &json!(0.0))
    );
}

/// A demo with `--watch` prints the URL of its page, whose figures move while the demo runs.
#[test]
fn a_demo_that_is_watched_says_where() {
    let mut command = Command::new(lessor());
    command.args(["demo", "--nodes", "2", "--seconds", "60", "--watch"]).stderr(Stdio::piped());
    let mut demo = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the command starts");
    let stderr = BufReader::new(demo.stderr.take().expect("a pipe"));
    let page =
        stderr.lines().map_while(Result::ok).find_map(|line| line.strip_prefix("page: ").map(str::to_owned));
    let page = page.expect("the demo prints the address of its page");
    let browser = Browser::open(&page);
    browser.wait(&format!("Number({}?.value) > 0", in_row("vendor/rest", "td:nth-child(4) data")));
    drop(browser);
    // The test reads no more of its output, so the demo is killed.
    let _ = demo.kill();
    let _ = demo.wait();
}
