//! Bytes that a key takes in a client, beside a bare map and a peer: memory that was allocated and is not freed, and
//! memory that became resident. The pools are the shipped ones, after they were lent to.

use crate::rows::keyed;

/// Prints the bytes a key of some maps, with as many keys as the rows have.
pub(crate) fn print() {
    let keys = keyed::MANY as f64;
    println!("| {keys} keys | bytes a key, allocated | resident |");
    println!("|---|---:|---:|");
    for (name, make) in keyed::maps() {
        let before = resident();
        let allocated = allocation_counter::measure(make).bytes_current as f64 / keys;
        let resident = match (before, resident()) {
            (Some(before), Some(after)) => format!("{:.0}", after.saturating_sub(before) as f64 / keys),
            _ => "-".to_owned(),
        };
        println!("| {name} | {allocated:.0} | {resident} |");
    }
}

/// Resident bytes of this process, where the platform tells.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(kilobytes.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}
