//! The screen of `lessor top`: all limits, or one with its top sessions and keys; and the reactions to keys.

use super::Seen;
use super::rows::{self, HEAD, Look, Row};
use crate::limits::table::text;
use crate::top::TopSort;
use lessor_protocol::Moment;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Table, TableState};
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Duration;

/// Looks over which rates are taken.
const LOOKS: usize = 6;

/// The help line with the keys.
const KEYS: &str = "q quit   s order   up/down choose   enter look at one   esc back";

/// The state of the screen.
#[derive(Debug)]
pub(super) struct Screen {
    sort: TopSort,
    /// The last looks, newest last.
    looks: VecDeque<Look>,
    /// Why the allocator cannot be asked.
    away: Option<String>,
    chosen: TableState,
    /// The limit that is shown alone, with its top sessions and keys.
    one: Option<(String, Option<Value>)>,
    rows: Vec<Row>,
}

/// The consequence of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Go,
    /// This limit, or none, is shown alone from now on.
    Look(Option<String>),
    Quit,
}

impl Screen {
    /// Creates a screen before the first look.
    pub(super) fn new(sort: TopSort) -> Self {
        let chosen = TableState::default().with_selected(0);
        Screen { sort, looks: VecDeque::new(), away: None, chosen, one: None, rows: vec![] }
    }

    /// Takes in a look.
    pub(super) fn take(&mut self, seen: Seen) {
        match seen {
            Seen::Away(why) => self.away = Some(why),
            Seen::Look(look) => {
                let (look, top) = *look;
                self.away = None;
                self.looks.push_back(look);
                if self.looks.len() > LOOKS {
                    self.looks.pop_front();
                }
                if let (Some((name, shown)), Some(top)) = (&mut self.one, top)
                    && top["limit"] == *name
                {
                    *shown = Some(top);
                }
                self.count();
            }
        }
    }

    /// Recomputes the rows. The chosen limit stays chosen, wherever it is now.
    fn count(&mut self) {
        let chosen = self.chosen().map(|row| row.name.clone());
        let Some(now) = self.looks.back() else { return };
        self.rows = rows::rows(now, self.looks.front().filter(|_| self.looks.len() > 1));
        rows::sort(&mut self.rows, self.sort);
        // The first place stays chosen: it belongs to the limit that needs an operator most.
        if self.chosen.selected().is_some_and(|at| at > 0) {
            let place = self.rows.iter().position(|row| Some(&row.name) == chosen.as_ref());
            self.chosen.select(Some(place.unwrap_or(0)));
        }
    }

    fn chosen(&self) -> Option<&Row> {
        self.rows.get(self.chosen.selected()?)
    }

    /// Reacts to `key`.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "most keys do nothing, and those of later versions neither"
    )]
    pub(super) fn press(&mut self, key: KeyEvent) -> Next {
        let at = self.chosen.selected().unwrap_or(0);
        let last = self.rows.len().saturating_sub(1);
        let mut place = at;
        match key.code {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Next::Quit,
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.count();
            }
            KeyCode::Down | KeyCode::Char('j') => place = (at + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => place = at.saturating_sub(1),
            KeyCode::PageDown => place = (at + 20).min(last),
            KeyCode::PageUp => place = at.saturating_sub(20),
            KeyCode::Home => place = 0,
            KeyCode::End => place = last,
            KeyCode::Enter => {
                let name = self.chosen().map(|row| row.name.clone());
                self.one = name.clone().map(|name| (name, None));
                return Next::Look(name);
            }
            KeyCode::Esc | KeyCode::Backspace => {
                self.one = None;
                return Next::Look(None);
            }
            _ => {}
        }
        if place != at {
            self.chosen.select(Some(place));
        }
        Next::Go
    }

    /// Draws the screen.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, now: Moment) {
        let parts = Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]);
        let [head, body, foot] = parts.areas(frame.area());
        frame.render_widget(self.head(now), head);
        match &self.one {
            None => self.all(frame, body),
            Some((name, top)) => {
                draw_one(frame, body, self.rows.iter().find(|row| row.name == *name), top.as_ref())
            }
        }
        frame.render_widget(Line::from(KEYS).dim(), foot);
    }

    fn head(&self, now: Moment) -> Line<'static> {
        let age = self.looks.back().map(|look| now.since(look.at));
        if let Some(why) = &self.away {
            let age =
                age.map_or("no figures yet".to_owned(), |age| format!("the figures are {} old", words(age)));
            return Line::from(format!("{why}: {age}")).red().bold();
        }
        if age.is_none() {
            return Line::from("asking the allocator");
        }
        let worst = self.rows.iter().filter(|row| row.bad >= 2).count();
        let limit = self.one.as_ref().map_or(String::new(), |(name, _)| format!("  {name}"));
        Line::from(format!(
            "{} limits, {worst} need attention, sorted by {}{limit}",
            self.rows.len(),
            self.sort.name()
        ))
        .bold()
    }

    fn all(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let lines: Vec<[String; 8]> = self.rows.iter().map(Row::cells).collect();
        let drawn = lines.iter().zip(&self.rows).map(|(cells, row)| {
            let style = match row.bad {
                _ if self.away.is_some() => Style::new().dim(),
                3 => Style::new().red(),
                2 => Style::new().yellow(),
                _ => Style::new(),
            };
            ratatui::widgets::Row::new(cells.clone()).style(style)
        });
        let table = Table::new(drawn, widths(&HEAD, &lines))
            .header(ratatui::widgets::Row::new(HEAD).bold())
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
            .column_spacing(2);
        frame.render_stateful_widget(table, area, &mut self.chosen);
    }
}

/// Draws the top sessions and keys of one limit.
fn draw_one(frame: &mut Frame<'_>, area: Rect, row: Option<&Row>, top: Option<&Value>) {
    let figures = row.map_or("this limit no longer exists".to_owned(), |row| {
        let named = HEAD
            .iter()
            .zip(row.cells())
            .skip(1)
            .map(|(name, cell)| format!("{} {cell}", name.to_lowercase()));
        named.collect::<Vec<_>>().join("   ")
    });
    let list = |of: &str| top.and_then(|top| top[of].as_array()).cloned().unwrap_or_default();
    let (nodes, keys) = (list("nodes"), list("keys"));
    let height = |rows: &[Value]| Constraint::Length(u16::try_from(rows.len() + 2).unwrap_or(u16::MAX));
    let parts = Layout::vertical([Constraint::Length(2), height(&nodes), Constraint::Min(0)]);
    let [about, above, below] = parts.areas(area);
    frame.render_widget(Paragraph::new(figures), about);
    const NODES: [&str; 7] = ["NODE", "LENT", "ENDS IN MS", "DEMAND/S", "WAITING", "SPENT", "WEIGHT"];
    draw_list(
        frame,
        above,
        &NODES,
        &nodes,
        &["node", "lease", "lease_ms", "demand", "waiting", "spent", "weight"],
    );
    if !keys.is_empty() {
        const KEYS: [&str; 7] = ["KEY", "LEFT", "LENT", "DEMAND/S", "WAITING", "SPENT", "LESSEES"];
        let figures = ["key", "available", "outstanding", "demand", "waiting", "spent", "lessees"];
        draw_list(frame, below, &KEYS, &keys, &figures);
    }
}

fn draw_list(
    frame: &mut Frame<'_>,
    area: Rect,
    head: &[&'static str; 7],
    rows: &[Value],
    figures: &[&str; 7],
) {
    let cell = |row: &Value, figure: &str| {
        // A pool of a pattern may have a name and no key.
        let value = if figure == "key" { row.get("key").or(row.get("limit")) } else { row.get(figure) };
        value.map(text).unwrap_or_default()
    };
    let lines: Vec<[String; 7]> = rows.iter().map(|row| figures.map(|figure| cell(row, figure))).collect();
    let drawn = lines.iter().map(|line| ratatui::widgets::Row::new(line.clone()));
    let table = Table::new(drawn, widths(head, &lines));
    frame.render_widget(table.header(ratatui::widgets::Row::new(*head).bold()).column_spacing(2), area);
}

/// Returns widths as large as the widest cell of each column, at most 40: a name takes at most half of a usual screen.
fn widths<const N: usize>(head: &[&str; N], lines: &[[String; N]]) -> [Constraint; N] {
    std::array::from_fn(|at| {
        let widest = lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
        Constraint::Length(u16::try_from(widest.max(head[at].len()).min(40)).unwrap_or(40))
    })
}

fn words(span: Duration) -> String {
    format!("{} s", span.as_secs().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rows::tests::look;
    use lessor_protocol::moment::seconds as at;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    fn drawn(screen: &mut Screen, now: Moment) -> String {
        let mut terminal = Terminal::new(TestBackend::new(90, 8)).expect("memory");
        terminal.draw(|frame| screen.draw(frame, now)).expect("memory");
        terminal.backend().to_string()
    }

    fn seen(look: Look, top: Option<Value>) -> Seen {
        Seen::Look(Box::new((look, top)))
    }

    #[test]
    fn limits_are_drawn_chosen_and_looked_at_and_age_when_the_allocator_is_away() {
        let mut screen = Screen::new(TopSort::Attention);
        assert!(drawn(&mut screen, at(0)).contains("asking the allocator"));
        screen.take(seen(look(1, &[("a", 90, 5, 0), ("b\u{1b}[2J", 0, 0, 0)]), None));
        screen.take(seen(look(2, &[("a", 60, 35, 0), ("b\u{1b}[2J", 0, 0, 3)]), None));
        let shown = drawn(&mut screen, at(2));
        assert!(shown.contains("2 limits, 1 need attention, sorted by attention"), "{shown}");
        assert!(shown.contains("empty, refusing") && !shown.contains('\u{1b}'), "{shown}");
        assert!(shown.find("60 of 100") > shown.find("empty, refusing"), "{shown}");

        let press = |screen: &mut Screen, code| screen.press(KeyEvent::from(code));
        assert_eq!(press(&mut screen, KeyCode::Down), Next::Go);
        assert_eq!(press(&mut screen, KeyCode::Enter), Next::Look(Some("a".to_owned())));
        let top = json!({ "limit": "a", "nodes": [{ "node": "checkout-1", "lease": 7, "demand": 1.5 }] });
        screen.take(seen(look(3, &[("a", 50, 45, 0)]), Some(top)));
        let shown = drawn(&mut screen, at(3));
        assert!(
            shown.contains("checkout-1") && shown.contains("1.5") && shown.contains("left 50 of 100"),
            "{shown}"
        );
        assert_eq!(press(&mut screen, KeyCode::Esc), Next::Look(None));

        screen.take(Seen::Away("cannot ask it".to_owned()));
        let shown = drawn(&mut screen, at(9));
        assert!(
            shown.contains("cannot ask it: the figures are 6 s old") && shown.contains("50 of 100"),
            "{shown}"
        );
        assert_eq!(press(&mut screen, KeyCode::Char('q')), Next::Quit);
    }
}
