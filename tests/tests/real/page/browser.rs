//! A headless Chromium, driven over its own pipe: commands go to its descriptor 3, answers and events come from 4. It
//! dies with the test that started it. Its profile is in a temporary folder.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lessor_protocol::CLOCK;
use lessor_protocol::lock_anyway::LockAnyway;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How long anything may take on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often to look at a page while a test waits for a change.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Connects the pipes to the descriptors 3 and 4, and discards all other output.
const START: &str = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";

/// No sandbox: tests run as root in containers, where it does not work, and the pages are the test's own.
const ARGS: &str = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-extensions \
    --disable-background-networking --disable-component-update --force-color-profile=srgb --remote-debugging-pipe";

/// A name of this machine that the browser does not trust as it trusts `localhost`.
pub(super) const UNTRUSTED: &str = "untrusted";

/// Lets the browser find this machine by that name.
const RESOLVES: &str = "--host-resolver-rules=MAP untrusted 127.0.0.1";

/// A browser with one page.
pub(super) struct Browser {
    child: Child,
    commands: Mutex<ChildStdin>,
    heard: Arc<(Mutex<Heard>, Condvar)>,
    next: AtomicU64,
    session: String,
    _folder: tempfile::TempDir,
}

/// Messages received from the browser.
#[derive(Default)]
struct Heard {
    answers: BTreeMap<u64, Value>,
    events: Vec<Value>,
    is_over: bool,
}

impl Browser {
    /// Opens a browser that shows `url`, as large as a laptop's screen.
    pub(super) fn open(url: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let profile = format!("--user-data-dir={}", folder.path().display());
        let mut command = Command::new("sh");
        command.args(["-c", START, "chromium"]).args(ARGS.split_whitespace());
        command.args([&profile, RESOLVES, "about:blank"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let commands = Mutex::new(child.stdin.take().expect("the pipe is there"));
        let heard = Arc::<(Mutex<Heard>, Condvar)>::default();
        let (stdout, into) = (child.stdout.take().expect("the pipe is there"), heard.clone());
        std::thread::spawn(move || listen(stdout, &into));
        let mut browser =
            Browser { child, commands, heard, next: 1.into(), session: String::new(), _folder: folder };
        let targets = browser.call("Target.getTargets", json!({}));
        let mut targets = targets["targetInfos"].as_array().expect("a list").iter();
        let page = targets.find(|target| target["type"] == "page").expect("the browser has a page");
        let attached =
            browser.call("Target.attachToTarget", json!({ "targetId": page["targetId"], "flatten": true }));
        browser.session = attached["sessionId"].as_str().expect("a text").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility", "Performance"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.size(1400, 800);
        browser.go(url);
        browser
    }

    /// Shows `url`.
    pub(super) fn go(&self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        self.wait("document.readyState === 'complete'");
    }

    /// Sets the size of the window, in pixels.
    pub(super) fn size(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Calls `method` of the browser and returns its result.
    pub(super) fn call(&self, method: &str, params: Value) -> Value {
        let answer = self.answer(method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Calls `method` of the browser and returns its answer, a result or an error.
    fn answer(&self, method: &str, params: Value) -> Value {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut command = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        let mut pipe = self.commands.lock().expect("no panic");
        pipe.write_all(format!("{command}\0").as_bytes()).expect("the browser reads its commands");
        drop(pipe);
        let (heard, news) = &*self.heard;
        let waits = |heard: &mut Heard| !heard.answers.contains_key(&id) && !heard.is_over;
        let (mut heard, _) = news.wait_timeout_while(heard.lock_anyway(), PATIENCE, waits).expect("no panic");
        heard.answers.remove(&id).unwrap_or_else(|| panic!("no answer to {method}"))
    }

    /// Returns the value of `script` in the page.
    pub(super) fn eval(&self, script: &str) -> Value {
        self.eval_here(script).unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Returns the value of `script` in the page.
    ///
    /// # Errors
    /// If the page went away meanwhile.
    fn eval_here(&self, script: &str) -> Result<Value, Value> {
        let how = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.answer("Runtime.evaluate", how);
        if answer["error"]["message"] == "Inspected target navigated or closed" {
            return Err(answer["error"].take());
        }
        assert!(answer.get("error").is_none(), "{script}: {answer}");
        let result = &answer["result"];
        assert!(result.get("exceptionDetails").is_none(), "{script}: {result}");
        Ok(result["result"]["value"].clone())
    }

    /// Waits until `script` is true, and returns how long that took. The page may change to another one meanwhile.
    pub(super) fn wait(&self, script: &str) -> Duration {
        let start = CLOCK.now();
        while self.eval_here(&format!("Boolean({script})")) != Ok(json!(true)) {
            assert!(
                CLOCK.now().since(start) < PATIENCE,
                "{script}: not in time; {}",
                self.eval("document.body.innerText")
            );
            std::thread::park_timeout(LOOK_EVERY);
        }
        CLOCK.now().since(start)
    }

    /// Presses and releases a key, as a user at the keyboard does.
    pub(super) fn press(&self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            "/" => (191, "/"),
            _ => panic!("{key} has no code here"),
        };
        let mut event = json!({ "type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code });
        if !text.is_empty() {
            event["text"] = json!(text);
        }
        self.call("Input.dispatchKeyEvent", event.clone());
        event["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", event);
    }

    /// Writes `text` into the element with the focus.
    pub(super) fn write(&self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Waits for the element that `script` finds, and clicks its middle.
    pub(super) fn click(&self, script: &str) {
        self.wait(script);
        let middle = format!(
            "(() => {{ const e = {script}; e.scrollIntoView({{ block: 'center' }}); const r = e.getBoundingClientRect(); \
             return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        );
        let middle = self.eval(&middle);
        for kind in ["mousePressed", "mouseReleased"] {
            let click =
                json!({ "type": kind, "x": middle[0], "y": middle[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", click);
        }
    }

    /// Clicks the visible button with the text `words`, in the open dialog if there is one.
    pub(super) fn push(&self, words: &str) {
        self.click(&format!(
            "[...(document.querySelector('dialog[open]') ?? document).querySelectorAll('button')]\
             .find((one) => one.textContent === {words:?} && one.checkVisibility())"
        ));
    }

    /// Saves a picture of the page in the colours of `scheme`, in the temporary folder of the build.
    pub(super) fn picture(&self, name: &str, scheme: &str) -> PathBuf {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        self.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
        let taken = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = STANDARD.decode(taken["data"].as_str().expect("a text")).expect("base64");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}-{scheme}.png"));
        std::fs::write(&path, bytes).expect("tests may leave something there");
        path
    }

    /// Returns the exceptions, errors and warnings of the page.
    pub(super) fn complaints(&self) -> Vec<String> {
        let heard = self.heard.0.lock_anyway();
        let is_bad = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => event["params"]["type"]
                .as_str()
                .is_some_and(|kind| ["error", "warning", "assert"].contains(&kind)),
            Some("Log.entryAdded") => {
                let level = event["params"]["entry"]["level"].as_str();
                level.is_some_and(|level| ["error", "warning"].contains(&level))
            }
            _ => false,
        };
        heard.events.iter().filter(is_bad).map(|event| event["params"].to_string()).collect()
    }

    /// Returns the URLs of all requests that the page made.
    pub(super) fn requests(&self) -> Vec<String> {
        let heard = self.heard.0.lock_anyway();
        let sent = heard.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.map(|event| event["params"]["request"]["url"].as_str().expect("a text").to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its pipe, and so do the processes that it has started. Killing it makes sure that it
        // does not linger.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(stdout: ChildStdout, heard: &(Mutex<Heard>, Condvar)) {
    for message in BufReader::new(stdout).split(0) {
        let Ok(message) = message else { break };
        let Ok(message) = serde_json::from_slice::<Value>(&message) else { break };
        let mut all = heard.0.lock_anyway();
        match message["id"].as_u64() {
            Some(id) => drop(all.answers.insert(id, message)),
            None => all.events.push(message),
        }
        drop(all);
        heard.1.notify_all();
    }
    heard.0.lock_anyway().is_over = true;
    heard.1.notify_all();
}
