//! Records as they are printed.

use std::io::{self, Write};

use plimsoll_log::Record;
use serde_json::{Value, json};

use crate::log_args::OutputFormat;

/// Prints a record.
pub(super) fn write(
    out: &mut impl Write,
    record: Record<'_>,
    format: OutputFormat,
) -> io::Result<()> {
    let payload = record.payload;
    match format {
        OutputFormat::Lines => {
            out.write_all(payload)?;
            out.write_all(b"\n")
        }
        OutputFormat::Length => {
            let length = u32::try_from(payload.len()).expect("a frame's length");
            out.write_all(&length.to_le_bytes())?;
            out.write_all(payload)
        }
        OutputFormat::Json => {
            let mut object = json!({ "index": record.index });
            put_payload(&mut object, payload);
            writeln!(out, "{object}")
        }
    }
}

/// `payload` if it is text, `payload_hex` if it is not.
pub(super) fn put_payload(object: &mut Value, payload: &[u8]) {
    match std::str::from_utf8(payload) {
        Ok(text) => object["payload"] = text.into(),
        Err(_no_text) => {
            let hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
            object["payload_hex"] = hex.into();
        }
    }
}
