//! `OsDir` passes the contract on the filesystem of the temporary directory. `mounted.rs` in
//! plimsoll-lab runs it on ext4 and xfs as well.

use std::sync::{Arc, Mutex};

use plimsoll_sync::{Dir, OsDir};

#[test]
fn os_dir_keeps_the_contract() {
    let scratch = Mutex::new(Vec::new());
    plimsoll_sync::contract::check(&|| {
        let tmp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let dir: Arc<dyn Dir> = Arc::new(OsDir::open(tmp.path()).unwrap());
        scratch.lock().unwrap().push(tmp);
        dir
    });
}
