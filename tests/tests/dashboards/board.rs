//! A Grafana dashboard, read from its file as far as tests look at it.

use super::project;
use serde_json::Value;

#[derive(Debug)]
pub(super) struct Board {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) links: Vec<String>,
    /// The panels that show something, without the rows.
    pub(super) panels: Vec<Panel>,
    /// The places of panels and rows.
    pub(super) places: Vec<Place>,
    /// Titles of the rows, and their places.
    pub(super) rows: Vec<(String, Place)>,
    /// The queries that fill its variables.
    pub(super) variables: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) question: String,
    pub(super) unit: String,
    /// The kind of panel, such as `timeseries`.
    pub(super) kind: String,
    pub(super) place: Place,
    pub(super) targets: Vec<Target>,
}

#[derive(Debug)]
pub(super) struct Target {
    pub(super) datasource: String,
    pub(super) expr: String,
    /// The name of a line, with labels in braces.
    pub(super) legend: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) id: u64,
    pub(super) x: u64,
    pub(super) y: u64,
    pub(super) w: u64,
    pub(super) h: u64,
}

impl Place {
    pub(super) fn overlaps(&self, other: &Place) -> bool {
        self.x < other.x + other.w
            && other.x < self.x + self.w
            && self.y < other.y + other.h
            && other.y < self.y + self.h
    }
}

/// Reads all dashboards.
pub(super) fn boards() -> Vec<Board> {
    let folder = project().join("dashboards/grafana");
    let files = std::fs::read_dir(&folder).expect("the folder can be read");
    let mut files: Vec<_> = files.map(|file| file.expect("a readable file").path()).collect();
    files.sort();
    let files = files.into_iter().filter(|file| file.extension().is_some_and(|kind| kind == "json"));
    let boards = files.map(|file| {
        let text = std::fs::read_to_string(&file).expect("a readable file");
        board(&serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display())))
    });
    boards.collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn place(panel: &Value) -> Place {
    let number = |value: &Value| value.as_u64().expect("a number");
    let grid = &panel["gridPos"];
    let [id, x, y, w, h] = [&panel["id"], &grid["x"], &grid["y"], &grid["w"], &grid["h"]].map(number);
    Place { id, x, y, w, h }
}

fn board(board: &Value) -> Board {
    let panels = each(&board["panels"]).filter(|panel| panel["type"] != "row").map(|panel| Panel {
        title: text(&panel["title"]),
        question: text(&panel["description"]),
        unit: text(&panel["fieldConfig"]["defaults"]["unit"]),
        kind: text(&panel["type"]),
        place: place(panel),
        targets: each(&panel["targets"])
            .map(|target| Target {
                datasource: text(&target["datasource"]["uid"]),
                expr: text(&target["expr"]),
                legend: text(&target["legendFormat"]),
            })
            .collect(),
    });
    let rows = each(&board["panels"]).filter(|panel| panel["type"] == "row");
    let variables = each(&board["templating"]["list"]).filter(|it| it["type"] == "query");
    Board {
        name: text(&board["title"]),
        uid: text(&board["uid"]),
        links: each(&board["links"]).map(|link| text(&link["url"])).collect(),
        panels: panels.collect(),
        places: each(&board["panels"]).map(place).collect(),
        rows: rows.map(|row| (text(&row["title"]), place(row))).collect(),
        variables: variables.map(|it| text(&it["definition"])).collect(),
    }
}
