//! The page of an allocator that requires identities: an operator signs in with a token, is offered what its role
//! allows, and signs out.

use super::browser::{Browser, UNTRUSTED};
use lessor_access::{SECRET_BYTES, Tokens, calendar};
use scenarios::process::Allocator;

const ROLES: &str = r#"
[[role]]
name = "hands"
identities = ["token:operator"]
operate = ["vendor"]
[[role]]
name = "eyes"
identities = ["token:operator"]
read = ["other"]
[[limit]]
name = "vendor"
rules = [{ kind = "sliding_window", limit = 600, per = "60s" }]
[[limit]]
name = "other"
rules = [{ kind = "sliding_window", limit = 600, per = "60s" }]
[[limit]]
name = "hidden"
rules = [{ kind = "sliding_window", limit = 600, per = "60s" }]
"#;

#[test]
fn an_operator_signs_in_is_offered_what_it_may_do_and_signs_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut tokens, now) = (Tokens::default(), calendar());
    let [operator, stranger] = [("operator", 1), ("stranger", 2)].map(|(name, byte)| {
        tokens.add(name, None, now, &[byte; SECRET_BYTES]).expect("room").text.reveal().to_owned()
    });
    let file = folder.path().join("tokens.toml");
    std::fs::write(&file, tokens.to_string()).expect("a writable file");
    let config = format!("[store]\nkind = \"memory\"\n[auth]\ntokens = {file:?}\n{ROLES}");
    let allocator = Allocator::start(&config, "127.0.0.1:0", true);
    let browser = Browser::open(&format!("{}/", allocator.url));
    let field = "document.querySelector('input[name=token]')";
    let signs_in = |token: &str| {
        browser.wait(field);
        browser.eval(&format!("{field}.value = '{token}'; true"));
        browser.click("document.querySelector('form.sign button[type=submit]')");
    };
    signs_in("lessor_00000000_0");
    browser
        .wait("document.querySelector('form.sign .problem')?.textContent.includes('no identity is proven')");
    signs_in(&stranger);
    browser
        .wait("document.body?.textContent.includes('token:stranger has no right to look at anything here')");
    browser.click("document.querySelector('#me button')");
    signs_in(&operator);
    browser.wait("document.querySelector('tr[data-limit=vendor]')");
    assert_eq!(browser.eval("document.querySelector('#me span').textContent"), "token:operator");
    assert_eq!(browser.eval("document.cookie"), "", "a script can read the cookie");
    assert_eq!(
        browser.eval("document.querySelectorAll('tr[data-limit]').length"),
        2,
        "a limit without a right is hidden"
    );
    let offered = "[...document.querySelectorAll('.buttons button')].filter((one) => !one.hidden).map((one) => one.textContent).join()";
    browser.eval("location.hash = '#/limit/vendor'; true");
    browser.wait(&format!("({offered}).includes('Pause')"));
    assert_eq!(browser.eval(offered), "Pause…,Block a node…");
    browser.eval("location.hash = '#/limit/other'; true");
    browser.wait("document.querySelector('h1')?.textContent === 'other'");
    browser.wait(&format!("({offered}) === ''"));
    // After signing out, this browser has nothing left of the session.
    browser.click("document.querySelector('#me button')");
    browser.wait(field);
    browser.go(&format!("{}/", allocator.url));
    browser.wait(field);
}

/// The bug: the browser dropped the cookie of a page that came unencrypted from another machine, and the page asked for
/// the token again without a word.
#[test]
fn a_page_at_an_address_where_no_token_is_kept_says_so_and_asks_for_none() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("tokens.toml");
    std::fs::write(&file, "# no token\n").expect("a writable file");
    let config = format!("[store]\nkind = \"memory\"\n[auth]\ntokens = {file:?}\n{ROLES}");
    let allocator = Allocator::start(&config, "127.0.0.1:0", true);
    let browser = Browser::open(&format!("{}/", allocator.url.replace("127.0.0.1", UNTRUSTED)));
    browser
        .wait("document.querySelector('.sign .problem')?.textContent.includes('needs https or localhost')");
    assert_eq!(
        browser.eval("[isSecureContext, document.querySelectorAll('input').length].join()"),
        "false,0"
    );
}

/// A larger change is made only once the name of the limit is typed.
#[test]
fn a_removal_is_confirmed_by_the_name_of_the_limit() {
    let config = format!(
        "[store]\nkind = \"memory\"\n{}",
        &ROLES[ROLES.find("[[limit]]").expect("the roles name a limit")..]
    );
    let allocator = Allocator::start(&config, "127.0.0.1:0", true);
    let browser = Browser::open(&format!("{}/#/limit/vendor", allocator.url));
    browser.wait("document.querySelector('.title .badges')");
    browser.push("Take away…");
    browser.push("Take it away");
    browser.wait("document.querySelector('dialog .problem')?.textContent.includes('Type vendor to confirm')");
    browser.eval("document.querySelector('dialog input[name=typed]').value = 'vendo'; true");
    browser.push("Take it away");
    browser.eval("document.querySelector('dialog input[name=typed]').value = 'vendor'; true");
    browser.eval("document.querySelector('dialog input[name=reason]').value = 'it is over'; true");
    browser.push("Take it away");
    browser.wait(
        "document.querySelector('tr[data-limit=other]') && !document.querySelector('tr[data-limit=vendor]')",
    );
    // The allocator notices a zero too many.
    browser.eval("location.hash = '#/limit/other'; true");
    browser.push("Top up…");
    browser.write("6000");
    browser.push("Continue");
    browser.push("Top up");
    browser
        .wait("document.querySelector('dialog .problem')?.textContent.includes('the limit has 600 at most')");
    browser.eval("document.querySelector('dialog input[name=typed]').value = 'other'; true");
    browser.push("Top up");
    browser.wait("!document.querySelector('dialog')");
}
