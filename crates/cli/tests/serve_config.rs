//! `plimsoll serve --print-config`: a flag before the environment, that before a file, that before the
//! default, and each says where it comes from.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Asks in a directory, with an environment of its own.
fn ask(dir: &Path, environment: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.current_dir(dir).arg("serve").arg("--print-config").args(args);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PLIMSOLL_")) {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied()).output().unwrap()
}

fn printed(dir: &Path, environment: &[(&str, &str)], args: &[&str]) -> String {
    let output = ask(dir, environment, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The line of a key, without what aligns it.
fn line(printed: &str, key: &str) -> String {
    let found = printed.lines().find(|line| line.trim_start_matches("# ").starts_with(key));
    let words = found.unwrap_or_else(|| panic!("no {key} in\n{printed}")).split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

fn refused(file: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("plimsoll.toml"), file).unwrap();
    let output = ask(dir.path(), &[], &[]);
    assert_eq!(output.status.code(), Some(2), "{file}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_flag_beats_the_environment_beats_a_file_beats_the_default() {
    let dir = tempfile::tempdir().unwrap();
    let (port, environment) = ("partitions", [("PLIMSOLL_PARTITIONS", "3")]);
    let none = printed(dir.path(), &[], &[]);
    assert_eq!(line(&none, port), "partitions = 1 # default");
    fs::write(dir.path().join("plimsoll.toml"), "partitions = 2\n").unwrap();
    let filed = printed(dir.path(), &[], &[]);
    assert_eq!(line(&filed, port), "partitions = 2 # file: plimsoll.toml");
    let set = printed(dir.path(), &environment, &[]);
    assert_eq!(line(&set, port), "partitions = 3 # environment: PLIMSOLL_PARTITIONS");
    let typed = printed(dir.path(), &environment, &["--partitions", "4"]);
    assert_eq!(line(&typed, port), "partitions = 4 # flag: --partitions");
    // A flag that says the default is typed all the same.
    let typed = printed(dir.path(), &environment, &["--partitions", "1"]);
    assert_eq!(line(&typed, port), "partitions = 1 # flag: --partitions");
}

#[test]
fn what_is_printed_is_a_file_that_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let file = "listen = \"127.0.0.1:1\"\nhttp = \"none\"\n[flush]\nage = \"250ms\"\n\
                [groups]\noffsets-retention = \"1day\"\n[limits]\nconnections = 7\n";
    fs::write(dir.path().join("first.toml"), file).unwrap();
    let first = printed(dir.path(), &[], &["--config", "first.toml", "--allow-anyone"]);
    for said in [
        "http = \"none\" # file: first.toml",
        "age = \"250ms\" # file: first.toml",
        "connections = 7 # file: first.toml",
        "allow-anyone = true # flag: --allow-anyone",
        "# advertise # not set",
        "ring-bytes = \"32MiB\" # default",
    ] {
        let key = said.trim_start_matches("# ").split(' ').next().unwrap();
        assert_eq!(line(&first, key), said);
    }
    fs::write(dir.path().join("second.toml"), &first).unwrap();
    let second = printed(dir.path(), &[], &["--config", "second.toml"]);
    let values = |printed: &str| -> Vec<String> {
        printed.lines().map(|line| line.split(" #").next().unwrap().trim_end().to_owned()).collect()
    };
    assert_eq!(values(&first), values(&second));
    assert!(!second.contains("# default"), "all of it is in the file now:\n{second}");
}

#[test]
fn what_a_file_says_wrongly_is_told_with_its_line() {
    for (file, said) in [
        ("dir = \"d\"\nlisten-on = \"127.0.0.1:1\"\n", "line 2"),
        ("dir = \"d\"\nlisten-on = \"127.0.0.1:1\"\n", "unknown field `listen-on`"),
        ("[flush]\nage = \"1s\"\nbytes = \"64MB\"\n", "line 3"),
        ("[flush]\nage = \"1\"\n", "a number and a unit"),
        ("[groups]\nmembers = 3\n", "unknown field `members`"),
        ("partitions = \"many\"\n", "line 1"),
        ("partitions = 0\n", "1 to 100000"),
        ("listen = \"somewhere\"\n", "line 1"),
        ("http = \"nowhere\"\n", "neither an address"),
        ("dir = \n", "line 1"),
        ("[limits]\nconnections = 0\n", "nobody could be served"),
        ("[limits]\nmemory-bytes = \"1MiB\"\n", "at least 8MiB"),
        ("[groups]\nsession-min = \"1h\"\n", "no session could be"),
        // It held 24 days, and printed 100.
        ("[groups]\nsession-max = \"100days\"\n", "groups.session-max is more than Kafka can say"),
        ("[flush]\nage = \"0s\"\n", "must be more than 0"),
        ("[flush]\nbytes = \"0B\"\n", "must be more than 0"),
        ("chapter-bytes = \"0B\"\n", "a chapter would end before it begins"),
        ("chapter-age = \"0s\"\n", "a chapter would end before it begins"),
    ] {
        let told = refused(file);
        assert!(told.contains(said), "{file}: {told}");
    }
}

/// What a broker has is said twice, as a flag has its default in words.
#[test]
fn chapters_are_by_default_as_the_library_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let options = plimsoll_server::broker::Options::default();
    let none = printed(dir.path(), &[], &[]);
    let said = format!("chapter-bytes = \"{}MiB\" # default", options.chapter_bytes >> 20);
    assert_eq!(line(&none, "chapter-bytes"), said);
    let said = format!("chapter-age = \"{}h\" # default", options.chapter_age.as_secs() / 3600);
    assert_eq!(line(&none, "chapter-age"), said);
    let environment = [("PLIMSOLL_CHAPTER_BYTES", "8MiB")];
    let set = printed(dir.path(), &environment, &["--chapter-age", "5m"]);
    let said = "chapter-bytes = \"8MiB\" # environment: PLIMSOLL_CHAPTER_BYTES";
    assert_eq!(line(&set, "chapter-bytes"), said);
    assert_eq!(line(&set, "chapter-age"), "chapter-age = \"5m\" # flag: --chapter-age");
}

#[test]
fn a_scrub_comes_each_week_unless_it_is_told_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let every = plimsoll_server::broker::Options::default().scrub_every.unwrap();
    let none = printed(dir.path(), &[], &[]);
    let said = format!("scrub-every = \"{}days\" # default", every.as_secs() / (24 * 3600));
    assert_eq!(line(&none, "scrub-every"), said);
    for never in ["0", "0s", "never"] {
        let typed = printed(dir.path(), &[], &["--scrub-every", never]);
        assert_eq!(line(&typed, "scrub-every"), "scrub-every = \"never\" # flag: --scrub-every");
        fs::write(dir.path().join("plimsoll.toml"), format!("scrub-every = \"{never}\"\n"))
            .unwrap();
        let filed = printed(dir.path(), &[], &[]);
        let said = "scrub-every = \"never\" # file: plimsoll.toml";
        assert_eq!(line(&filed, "scrub-every"), said);
    }
    let set = printed(dir.path(), &[("PLIMSOLL_SCRUB_EVERY", "30m")], &[]);
    assert_eq!(
        line(&set, "scrub-every"),
        "scrub-every = \"30m\" # environment: PLIMSOLL_SCRUB_EVERY"
    );
    assert!(refused("scrub-every = \"weekly\"\n").contains("like 250ms or 7d, or never"));
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let dir = tempfile::tempdir().unwrap();
    let output = ask(dir.path(), &[], &["--config", "none.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("cannot read none.toml"), "{told}");
}

/// A join that failed left `> node.toml` empty, and who started a broker with that had a cluster of its own.
#[test]
fn a_file_that_is_named_and_empty_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("node.toml"), "\n").unwrap();
    let output = ask(dir.path(), &[], &["--config", "node.toml"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("node.toml is empty: "), "{said}");
    // One that is only here may say nothing.
    fs::write(dir.path().join("plimsoll.toml"), "\n").unwrap();
    printed(dir.path(), &[], &[]);
}

/// The other brokers, and all clients, were told to connect to 0.0.0.0: to themselves.
#[test]
fn a_node_of_a_cluster_that_listens_everywhere_must_say_what_others_connect_to() {
    let dir = tempfile::tempdir().unwrap();
    let serve = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.current_dir(dir.path()).args(["serve", "--until-stdin-ends", "--http", "none"]);
        command.args(["--node", "1", "--members", "1=127.0.0.1:19998", "--allow-anyone"]);
        command.args(["--cluster-id", "0123456789abcdef0123456789abcdef"]).args(args);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for [listen, advertise] in [
        ["0.0.0.0:19997", ""],
        ["[::]:19997", ""],
        ["[::ffff:0.0.0.0]:19997", ""],
        ["127.0.0.1:19997", "0.0.0.0:9092"],
        ["127.0.0.1:19997", "[::]:9092"],
    ] {
        let of_flag = ["--listen", listen, "--advertise", advertise];
        let (code, told) = serve(if advertise.is_empty() { &of_flag[..2] } else { &of_flag });
        assert_eq!(code, Some(2), "{listen} {advertise}: {told}");
        assert!(
            told.contains("say where with --advertise HOST:PORT"),
            "{listen} {advertise}: {told}"
        );
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing was made");
    }
    let (code, told) = serve(&["--listen", "0.0.0.0:19997", "--advertise", "a.example:9092"]);
    assert_eq!(code, Some(0), "{told}");
}

/// It was a panic.
#[cfg(target_os = "linux")]
#[test]
fn a_path_that_no_file_can_say_is_refused() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.current_dir(dir.path()).args(["serve", "--print-config", "--dir"]);
    let output = command.arg(OsStr::from_bytes(b"d\xff")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("is not UTF-8"), "{told}");
}

#[test]
fn every_flag_has_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let help = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["serve", "--help"]).output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    let flags = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    let flags = flags.map(|flag| flag.split([' ', '=']).next().unwrap());
    let printed = printed(dir.path(), &[], &[]);
    let mut count = 0;
    for flag in flags.filter(|flag| !["config", "print-config", "help"].contains(flag)) {
        line(&printed, flag);
        count += 1;
    }
    assert!(count >= 9, "{count} flags were found in\n{help}");
}
