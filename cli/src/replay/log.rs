//! A line of an access log, as nginx and Apache write it by default (the common and the combined format): the client
//! and the time. The rest of the line is ignored.

use jiff::fmt::strtime;
use lessor_protocol::Moment;

/// Format of the time, as in `10/Oct/2000:13:55:36 -0700`.
const TIME: &str = "%d/%b/%Y:%H:%M:%S %z";

/// Returns the client of a line and when its request was answered, to the second.
///
/// # Errors
/// The part that the line lacks.
pub(super) fn parse(line: &[u8]) -> Result<(&str, Moment), String> {
    let line = std::str::from_utf8(line).map_err(|_| "is no UTF-8".to_owned())?;
    // host ident user [time] "request" status bytes …
    let (client, rest) = line.trim_start().split_once(' ').ok_or("is no line of an access log")?;
    let (_, rest) = rest.split_once('[').ok_or("has no [time]")?;
    let (time, rest) = rest.split_once(']').ok_or("has no [time]")?;
    if !rest.trim_start().starts_with('"') {
        return Err("has no \"request\" after its [time]".to_owned());
    }
    let wrong = || format!("[{time}] is no time: it should be as [10/Oct/2000:13:55:36 -0700]");
    let instant = strtime::parse(TIME, time).and_then(|parsed| parsed.to_timestamp()).map_err(|_| wrong())?;
    let nanos = u64::try_from(instant.as_nanosecond()).map_err(|_| wrong())?;
    Ok((client, Moment::from_nanos(nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMBINED: &str =
        r#"203.0.113.9 - frank [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326 "-" "curl/8""#;

    #[test]
    fn a_line_names_its_client_and_its_time() {
        let at = Moment::from_nanos(971_211_336_000_000_000);
        assert_eq!(parse(COMBINED.as_bytes()), Ok(("203.0.113.9", at)));
        let common = r#"::1 - - [10/Oct/2000:20:55:36 +0000] "GET / HTTP/1.1" 304 -"#;
        assert_eq!(parse(common.as_bytes()), Ok(("::1", at)));
    }

    #[test]
    fn what_is_no_line_of_a_log_is_refused_with_what_it_lacks() {
        let check = |line: &str, lacks: &str| {
            let error = parse(line.as_bytes()).expect_err(line);
            assert!(error.contains(lacks), "{line}: {error}");
        };
        check("offset_s,client", "no line of an access log");
        check("203.0.113.9 - frank", "[time]");
        check("203.0.113.9 - - [10/Oct/2000:13:55:36 -0700] 200", "\"request\"");
        check("203.0.113.9 - - [yesterday] \"GET /\"", "[yesterday]");
        check("203.0.113.9 - - [10/Oct/1900:13:55:36 +0000] \"GET /\"", "no time");
        assert!(parse(b"203.0.113.9 - - [\xff]").is_err());
    }
}
