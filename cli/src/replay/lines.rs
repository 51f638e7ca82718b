//! Reads requests line by line from a file or a pipe, as JSON Lines, CSV or an access log, with their line numbers. It
//! holds one line at a time, and never waits for a line when it could return one.

use super::log;
use super::request::{Call, Request};
use crate::failure::Failure;
use lessor_protocol::Moment;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read, stdin};
use std::path::Path;
use std::time::Duration;

/// Longest line, in bytes. A request takes about a hundred, new rules a few hundred; a line without an end must not
/// fill the memory.
const LINE_MAX: u64 = 1 << 20;

/// The bytes that some programs put before the first line of a text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The columns of a CSV file, in any order; others are ignored.
const OFFSET: &str = "offset_s";
const CLIENT: &str = "client";

/// Digits after the point of a second that fit into nanoseconds; further ones are cut off.
const FRACTION_DIGITS: usize = 9;

/// The lines of an input.
pub(crate) struct Lines {
    input: BufReader<Box<dyn Read>>,
    /// Number of the line that was read last, from one.
    number: u64,
    line: Vec<u8>,
    form: Form,
    /// Margin of rules that set none.
    margin: Duration,
    /// Time of the latest request so far. A log is in the order of answers, so its times go back by a little.
    latest: Moment,
}

/// The format of the lines.
enum Form {
    /// Not known before the first line.
    Unknown(Csv),
    /// JSON Lines.
    Json,
    /// CSV, with the columns of offset and client.
    Csv { offset: usize, client: usize, csv: Csv },
    /// An access log, whose requests are those of a CSV file.
    Log { csv: Csv },
}

/// The request that each line of a CSV file or an access log makes: one permit.
#[derive(Clone, Debug)]
pub(crate) struct Csv {
    /// The limit, or why it is not known.
    pub(crate) limit: Result<String, String>,
    /// Whether the client is the key.
    pub(crate) keyed: bool,
    /// How long a request waits, if it does.
    pub(crate) patience: Option<Duration>,
}

/// One line: its request, or the problem with it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) number: u64,
    pub(crate) request: Result<Request, String>,
}

impl Lines {
    /// Opens `file`, or stdin if it is `-`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(crate) fn open(file: &Path, csv: Csv, margin: Duration) -> Result<Self, Failure> {
        let input: Box<dyn Read> = if file == Path::new("-") {
            Box::new(stdin())
        } else {
            let wrong = |error: io::Error| Failure::Input(format!("cannot read {}: {error}", file.display()));
            let opened = File::open(file).map_err(wrong)?;
            if opened.metadata().map_err(wrong)?.is_dir() {
                return Err(wrong(ErrorKind::IsADirectory.into()));
            }
            Box::new(opened)
        };
        Ok(Lines::new(input, csv, margin))
    }

    /// Reads from `input`.
    pub(crate) fn new(input: Box<dyn Read>, csv: Csv, margin: Duration) -> Self {
        Lines {
            input: BufReader::new(input),
            number: 0,
            line: vec![],
            form: Form::Unknown(csv),
            margin,
            latest: Moment::ORIGIN,
        }
    }

    /// Returns the next request, `None` at the end. Blank lines are skipped.
    ///
    /// # Errors
    /// If the input cannot be read, or begins with the header of a CSV file that cannot be replayed.
    pub(crate) fn next(&mut self) -> Result<Option<Line>, Failure> {
        while self.read()? {
            if self.line.trim_ascii().is_empty() {
                continue;
            }
            if let Form::Unknown(csv) = &self.form {
                let header = header(&self.line, csv.clone()).map_err(Failure::Input)?;
                self.form = match header {
                    Some(form) => form,
                    None if log::parse(self.line.trim_ascii_end()).is_ok() => {
                        csv.limit.clone().map_err(Failure::Input)?;
                        Form::Log { csv: csv.clone() }
                    }
                    None => Form::Json,
                };
                if let Form::Csv { .. } = self.form {
                    continue;
                }
            }
            return Ok(Some(Line { number: self.number, request: self.request() }));
        }
        Ok(None)
    }

    /// Whether the next line is buffered, so that reading it waits for no input.
    pub(crate) fn is_ready(&self) -> bool {
        self.input.buffer().contains(&b'\n')
    }

    /// Reads a line; `false` at the end. Only the beginning of a line that is too long is kept.
    fn read(&mut self) -> Result<bool, Failure> {
        let broken = |error| Failure::Run(format!("cannot read requests: {error}"));
        self.line.clear();
        self.number += 1;
        let mut part = self.input.by_ref().take(LINE_MAX);
        if part.read_until(b'\n', &mut self.line).map_err(broken)? == 0 {
            return Ok(false);
        }
        if self.line.len() as u64 == LINE_MAX && self.line.last() != Some(&b'\n') {
            self.input.skip_until(b'\n').map_err(broken)?;
        }
        if self.number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
            self.line.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(true)
    }

    fn request(&mut self) -> Result<Request, String> {
        if self.line.len() as u64 == LINE_MAX {
            return Err(format!("is longer than {LINE_MAX} bytes"));
        }
        let line = self.line.trim_ascii_end();
        match &self.form {
            Form::Csv { offset, client, csv } => row(line, *offset, *client, csv),
            Form::Log { csv } => {
                let (client, at) = log::parse(line)?;
                self.latest = self.latest.max(at);
                csv.request(client, self.latest)
            }
            Form::Json | Form::Unknown(_) => Request::parse(line, self.margin),
        }
    }
}

/// Returns the format that a first line announces, if it is the header of a CSV file.
fn header(line: &[u8], csv: Csv) -> Result<Option<Form>, String> {
    let fields = if line.trim_ascii_start().starts_with(b"{") { None } else { fields(line).ok() };
    let Some(fields) = fields else { return Ok(None) };
    let Some(offset) = fields.iter().position(|field| field == OFFSET) else {
        let is_name = |field: &str| {
            let mut letters = field.chars();
            letters.next().is_some_and(|first| first.is_ascii_alphabetic())
                && letters.all(|letter| letter.is_ascii_alphanumeric() || "_-. ".contains(letter))
        };
        if fields.len() < 2 || !fields.iter().all(is_name) {
            return Ok(None);
        }
        let found = fields.iter().collect::<Vec<_>>().join(",");
        return Err(format!(
            "line 1: {found:?} is no header of requests: a CSV file begins with {OFFSET},{CLIENT}"
        ));
    };
    csv.limit.clone()?;
    let client = fields.iter().position(|field| field == CLIENT);
    let client = client.ok_or_else(|| {
        let found = fields.iter().collect::<Vec<_>>().join(",");
        format!("line 1: no column {CLIENT} in {found:?}; needed are {OFFSET} and {CLIENT}")
    })?;
    Ok(Some(Form::Csv { offset, client, csv }))
}

fn row(line: &[u8], offset: usize, client: usize, csv: &Csv) -> Result<Request, String> {
    let fields = fields(line)?;
    let field = |at: usize, name: &str| fields.get(at).ok_or_else(|| format!("{name} is missing"));
    csv.request(field(client, CLIENT)?, parse_offset(field(offset, OFFSET)?)?)
}

impl Csv {
    /// Creates a request of `client` at `at`.
    fn request(&self, client: &str, at: Moment) -> Result<Request, String> {
        Ok(Request {
            at,
            limit: self.limit.clone()?,
            key: self.keyed.then(|| client.to_owned()),
            node: None,
            call: match self.patience {
                None => Call::TryAcquire(1),
                patience @ Some(_) => Call::Acquire(1, patience),
            },
        })
    }
}

fn fields(line: &[u8]) -> Result<csv::StringRecord, String> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).trim(csv::Trim::All).from_reader(line);
    let mut record = csv::StringRecord::new();
    reader.read_record(&mut record).map_err(|error| format!("is no CSV: {error}"))?;
    Ok(record)
}

/// Parses seconds in decimals to whole nanoseconds, without floats.
fn parse_offset(text: &str) -> Result<Moment, String> {
    let wrong = || format!("{OFFSET} is {text:?}: use a number of seconds, for example 12.5");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !(whole.to_owned() + fraction).bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(FRACTION_DIGITS).collect();
    let seconds: u64 = whole.parse().map_err(|_| wrong())?;
    let fraction: u64 = digits.parse().map_err(|_| wrong())?;
    let nanos = seconds.checked_mul(1_000_000_000).and_then(|nanos| nanos.checked_add(fraction));
    nanos.map(Moment::from_nanos).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_exact_to_the_nanosecond() {
        let check = |text: &str, nanos: u64| assert_eq!(parse_offset(text), Ok(Moment::from_nanos(nanos)));
        check("0", 0);
        check("12.5", 12_500_000_000);
        check("0.000000001", 1);
        check("1.9999999999", 1_999_999_999);
        check("18446744073.709551615", u64::MAX);
        for text in ["", "-1", "1e3", "NaN", "1.5.2", "18446744073.709551616", "soon", ".5"] {
            assert!(parse_offset(text).is_err(), "{text}");
        }
    }
}
