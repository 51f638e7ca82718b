//! One row of a store: a checksum, then JSON.

use redb::{AccessGuard, StorageError, Table};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes `row` under `name`, or removes the row there, and takes both rows into the `sum` of all. Returns the old row.
pub(super) fn put_row<'a>(
    table: &'a mut Table<'_, &'static str, &'static [u8]>,
    name: &str,
    row: Option<&impl Serialize>,
    sum: &mut u64,
) -> Result<Option<AccessGuard<'a, &'static [u8]>>, StorageError> {
    let packed = row.map(packed);
    let old = match &packed {
        Some(packed) => table.insert(name, packed.as_slice())?,
        None => table.remove(name)?,
    };
    *sum ^= old.as_ref().map_or(0, |old| row_sum(name, old.value()));
    *sum ^= packed.map_or(0, |packed| row_sum(name, &packed));
    Ok(old)
}

/// Encodes a row: a checksum, then JSON.
pub(super) fn packed(row: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, row).expect("rows are plain data");
    let sum = crc32fast::hash(&bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

pub(super) fn unpacked<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, String> {
    let (sum, text) = bytes.split_first_chunk::<4>().ok_or_else(|| format!("{name} is cut short"))?;
    if crc32fast::hash(text) != u32::from_le_bytes(*sum) {
        return Err(format!("{name} has a wrong checksum"));
    }
    serde_json::from_slice(text).map_err(|error| format!("{name}: {error}"))
}

/// Returns the part of a row in the sum of all.
pub(super) fn row_sum(name: &str, row: &[u8]) -> u64 {
    let (name, row) = (crc32fast::hash(name.as_bytes()), crc32fast::hash(row));
    // A plain sum of names and of rows would not show two rows that changed places.
    (u64::from(name) << 32 | u64::from(row)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
