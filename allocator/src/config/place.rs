//! Finds where a key stands in the text of a configuration, by the path that a problem begins with. Checks know keys
//! and no places: only an error looks one up.

use toml::de::{DeTable, DeValue};

/// One step from a value to a value in it.
#[derive(Debug, PartialEq)]
enum Step {
    Key(String),
    Index(usize),
}

/// Returns the offset in `text` of the key that `problem` begins with, as in `limit[0].rules[1].per is zero`. If part
/// of the path is missing, the offset is of the part that is there: of a rule without `per`, the rule. `override."x"`
/// is the override with that key.
pub(super) fn offset(text: &str, problem: &str) -> usize {
    let Ok(document) = DeTable::parse(text) else { return 0 };
    let (mut place, root) = (0, DeValue::Table(document.into_inner()));
    let mut value = &root;
    for step in steps(problem) {
        let Some((at, inside)) = inside(value, &step) else { break };
        (place, value) = (at, inside);
    }
    place
}

/// Returns the value that `step` leads to, and its offset.
fn inside<'a, 'i>(value: &'a DeValue<'i>, step: &Step) -> Option<(usize, &'a DeValue<'i>)> {
    match (value, step) {
        (DeValue::Table(table), Step::Key(name)) => {
            let (key, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
            Some((key.span().start, value.get_ref()))
        }
        (DeValue::Array(all), Step::Index(index)) => {
            all.get(*index).map(|value| (value.span().start, value.get_ref()))
        }
        (DeValue::Array(all), Step::Key(name)) => {
            let is_named = |value: &DeValue<'_>| {
                value.get("key").and_then(|key| key.get_ref().as_str()) == Some(name.as_str())
            };
            let found = all.iter().find(|value| is_named(value.get_ref()))?;
            Some((found.span().start, found.get_ref()))
        }
        _ => None,
    }
}

/// Parses the path that `problem` begins with.
fn steps(problem: &str) -> Vec<Step> {
    let (mut steps, mut rest) = (vec![], problem);
    loop {
        let step = match rest.chars().next() {
            Some('[') => index(rest),
            Some('.') => key(&rest[1..]),
            Some(_) if steps.is_empty() => key(rest),
            _ => None,
        };
        let Some((step, after)) = step else { return steps };
        steps.push(step);
        rest = after;
    }
}

/// Parses `[1]` at the beginning of `text`, and returns the rest.
fn index(text: &str) -> Option<(Step, &str)> {
    let (number, after) = text.strip_prefix('[')?.split_once(']')?;
    Some((Step::Index(number.parse().ok()?), after))
}

/// Parses a key at the beginning of `text`, bare or in quotes, and returns the rest.
fn key(text: &str) -> Option<(Step, &str)> {
    if text.starts_with('"') {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let key = values.next()?.ok()?;
        return Some((Step::Key(key), &text[values.byte_offset()..]));
    }
    let is_bare = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    let (key, after) = text.split_at(text.find(|letter| !is_bare(letter)).unwrap_or(text.len()));
    (!key.is_empty()).then(|| (Step::Key(key.to_owned()), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_begins_with_the_way_to_its_key() {
        let key = |name: &str| Step::Key(name.to_owned());
        let way = [key("limit"), Step::Index(0), key("weights"), key("a b"), key("x")];
        assert_eq!(steps("limit[0].weights.\"a b\".x is 3: no"), way);
        assert_eq!(steps("rules: missing"), [key("rules")]);
        assert_eq!(steps("\"a: no"), []);
        assert_eq!(steps(""), []);
    }

    #[test]
    fn what_is_not_there_stands_where_it_would() {
        let text = "a = 1\n\n[[b]]\nc = [{\nkey = \"x\"\n}, {\nkey = \"y\",\nd = 2\n}]\n";
        let line = |way| text[..offset(text, way)].matches('\n').count() + 1;
        assert_eq!(
            ["a", "b[0].c[1].d", "b[0].c[0].d", "b[0].c.\"y\".d", "b[0].e", "z"].map(line),
            [1, 8, 4, 8, 3, 1]
        );
        assert_eq!(offset("a = ", "a"), 0, "no configuration at all");
    }
}
