//! Real requests from a CSV file: the client and the time of each. The replay reads it once, before anything is
//! started. Every complaint names file, line, column and value.

use crate::failure::Failure;
use lessor_protocol::Key;
use std::path::Path;
use std::time::Duration;

/// One request of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Time of the request since the start of the trace.
    pub(crate) offset: Duration,
    /// The client of the request. It becomes the key of the limit.
    pub(crate) client: String,
}

/// Most requests in one file. They are held in memory a few times over; ten million are about 1 GB.
const REQUESTS_MAX: usize = 10_000_000;

/// Largest file, in bytes: that many requests of long names.
const BYTES_MAX: u64 = 1 << 30;

/// Latest offset, in seconds: a year. It is far beyond what an operator replays, and nanoseconds of it never overflow.
const OFFSET_MAX_S: f64 = 366.0 * 24.0 * 3600.0;

/// The columns, in any order; others are ignored.
const OFFSET: &str = "offset_s";
const CLIENT: &str = "client";

/// Reads the requests in `file`, in the order of their offsets; requests with the same offset keep their order.
///
/// # Errors
/// If the file cannot be read, lacks a column, has no request, or has a value that does not fit its column.
pub(crate) fn read(file: &Path) -> Result<Vec<Request>, Failure> {
    let name = file.display();
    let bytes = lessor_files::read(file, BYTES_MAX).map_err(|error| Failure::Input(error.to_string()))?;
    parse(&bytes).map_err(|problem| Failure::Input(format!("{name}{problem}")))
}

/// Parses the text of a file. A problem starts with its position, to follow the name of the file.
fn parse(bytes: &[u8]) -> Result<Vec<Request>, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(bytes);
    let headers = reader.headers().map_err(unreadable)?.clone();
    let offset_at = column(&headers, OFFSET)?;
    let client_at = column(&headers, CLIENT)?;

    let mut requests = Vec::new();
    for record in reader.records() {
        let record = record.map_err(unreadable)?;
        let line = record.position().map_or(0, csv::Position::line);
        if requests.len() == REQUESTS_MAX {
            return Err(format!(
                ", line {line}: more than {REQUESTS_MAX} requests, the most that are replayed"
            ));
        }
        let wrong = |column: &str, problem: String| format!(", line {line}, column {column}: {problem}");
        // The reader promises records as long as the header.
        let (offset, client) = (&record[offset_at], &record[client_at]);
        requests.push(Request {
            offset: parse_offset(offset).map_err(|problem| wrong(OFFSET, problem))?,
            client: parse_client(client).map_err(|problem| wrong(CLIENT, problem))?,
        });
    }
    if requests.is_empty() {
        return Err(": no request in it, only a header".to_owned());
    }
    requests.sort_by_key(|request| request.offset);
    Ok(requests)
}

fn column(headers: &csv::StringRecord, name: &str) -> Result<usize, String> {
    headers.iter().position(|header| header == name).ok_or_else(|| {
        let found = headers.iter().collect::<Vec<_>>().join(",");
        format!(", line 1: no column {name} in {found:?}; needed are {OFFSET} and {CLIENT}")
    })
}

fn parse_offset(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    if !(0.0..=OFFSET_MAX_S).contains(&seconds) {
        return Err(format!("{text:?} is not between 0 and {OFFSET_MAX_S} seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn parse_client(text: &str) -> Result<String, String> {
    Key::try_new(text).map_err(|problem| format!("{text:?} {problem}"))?;
    Ok(text.to_owned())
}

/// Describes an error of the reader: a line with more or fewer fields, or text that is not UTF-8.
fn unreadable(error: csv::Error) -> String {
    let line = error.position().map_or(1, csv::Position::line);
    if let csv::ErrorKind::UnequalLengths { expected_len, len, .. } = error.kind() {
        return format!(", line {line}: {len} fields, but the header has {expected_len}");
    }
    if let csv::ErrorKind::Utf8 { err, .. } = error.kind() {
        return format!(", line {line}, column {}: not UTF-8", err.field() + 1);
    }
    format!(", line {line}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(millis: u64, client: &str) -> Request {
        Request { offset: Duration::from_millis(millis), client: client.to_owned() }
    }

    #[test]
    fn requests_come_in_the_order_of_their_offsets() {
        let text = b"offset_s,client\n3,a\n0.5,b\r\n3,c\n";
        let expected = [request(500, "b"), request(3000, "a"), request(3000, "c")];
        assert_eq!(parse(text).expect("it is well-formed"), expected);
    }

    #[test]
    fn columns_may_come_in_any_order_among_others() {
        let text = b"path,client,offset_s\n/x,a,1\n";
        assert_eq!(parse(text).expect("it is well-formed"), [request(1000, "a")]);
    }

    #[test]
    fn a_complaint_names_line_column_and_value() {
        let check = |text: &str, expected: &str| {
            let problem = parse(text.as_bytes()).expect_err(text);
            assert!(problem.starts_with(expected), "{text:?} gave {problem:?}");
        };
        check("offset_s,client\n0,a\nsoon,b\n", ", line 3, column offset_s: \"soon\" is not a number");
        check("offset_s,client\n-1,a\n", ", line 2, column offset_s: \"-1\" is not between 0 and");
        check("offset_s,client\nNaN,a\n", ", line 2, column offset_s: \"NaN\" is not between");
        check("offset_s,client\n1e300,a\n", ", line 2, column offset_s: \"1e300\" is not between");
        check("offset_s,client\n1,\n", ", line 2, column client: \"\" is empty");
        check("offset_s,client\n1,a,b\n", ", line 2: 3 fields, but the header has 2");
        check("offset_s,user\n1,a\n", ", line 1: no column client in \"offset_s,user\"");
        check("offset_s,client\n", ": no request in it");
        check("", ", line 1: no column offset_s in \"\"");
        let problem = parse(b"offset_s,client\n1,a\n2,\xff\n").expect_err("not UTF-8");
        assert_eq!(problem, ", line 3, column 2: not UTF-8");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read(Path::new("no/such/file.csv")).expect_err("it is not there");
        assert!(error.to_string().starts_with("no/such/file.csv: cannot be read: "), "{error}");
    }
}
