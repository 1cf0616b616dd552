//! What docs/kafka.md says of the band.

use std::fmt::Write as _;

use crate::kafka::band::Api;

#[test]
fn the_page_shows_the_band_that_is_told() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/kafka.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = table();
    assert!(page.contains(&table), "docs/kafka.md should have this table:\n{table}");
}

/// What ApiVersions answers, and what is served where that is less.
fn table() -> String {
    let mut table = "| key | API | versions |\n| ---: | --- | --- |\n".to_owned();
    for api in Api::ALL {
        let (told, served) = (api.told(), api.served());
        write!(table, "| {} | {api:?} | {}–{}", api.key(), told.start(), told.end()).unwrap();
        if served != told {
            write!(table, " ({}–{} are served)", served.start(), served.end()).unwrap();
        }
        table.push_str(" |\n");
    }
    table
}
