//! `docs/durability.md` says what the code says.

use plimsoll_sync::{SyncMethod, System};

const DOCUMENT: &str = include_str!("../../../docs/durability.md");

/// A method's name, and its promise on Linux, macOS and Windows.
type Row = [String; 4];

#[test]
fn the_documented_table_is_the_one_in_the_code() {
    let coded: Vec<Row> = SyncMethod::ALL.into_iter().map(coded_row).collect();
    assert_eq!(documented_rows(DOCUMENT), coded);
}

fn coded_row(method: SyncMethod) -> Row {
    let promise = |system| match method.promise(system) {
        Some(promise) => promise.name().to_owned(),
        None => "–".to_owned(),
    };
    [
        method.name().to_owned(),
        promise(System::Linux),
        promise(System::Apple),
        promise(System::Windows),
    ]
}

/// The rows of section 2 whose first cell is a name in backticks, in their order.
fn documented_rows(document: &str) -> Vec<Row> {
    let section = document
        .split("\n## ")
        .find(|section| section.starts_with("2. "))
        .expect("the document has a section 2");
    section.lines().filter_map(documented_row).collect()
}

fn documented_row(line: &str) -> Option<Row> {
    let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
    let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
    let mut promise = || cells.next().unwrap_or("no cell").to_owned();
    Some([name.to_owned(), promise(), promise(), promise()])
}
