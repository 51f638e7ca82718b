//! The content of a shared store, read and removed without its allocators.

use super::Store;
use lessor_allocator::cells::StoreKind;

impl Store {
    /// Removes all that the store has, while allocators use it.
    pub(super) fn empty(&self, kind: StoreKind) {
        match kind {
            StoreKind::Redis => _ = self.server.tell("FLUSHALL"),
            StoreKind::Etcd => {
                _ = self.server.tell(r#"/v3/kv/deleterange {"key":"AA==","range_end":"AA=="}"#)
            }
            StoreKind::Memory | StoreKind::Postgres => _ = self.server.tell("DELETE FROM lessor_cells"),
        }
    }

    /// Returns the number of cells of roots.
    pub(super) fn roots(&self, kind: StoreKind) -> u64 {
        let (count, others) = match kind {
            StoreKind::Redis => (self.server.tell("DBSIZE").trim_start_matches(':').to_owned(), 1),
            StoreKind::Etcd => {
                let all = r#"/v3/kv/range {"key":"AA==","range_end":"AA==","count_only":true}"#;
                let told: serde_json::Value = serde_json::from_str(&self.server.tell(all)).expect("JSON");
                // The head, the mark of the timeline, and the time.
                (told["count"].as_str().expect("a number").to_owned(), 3)
            }
            StoreKind::Memory | StoreKind::Postgres => {
                (self.server.tell("SELECT count(*) FROM lessor_cells"), 1)
            }
        };
        count.parse::<u64>().unwrap_or_else(|_| panic!("no number: {count}")) - others
    }
}
