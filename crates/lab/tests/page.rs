//! The page that is made of saved results: complete, self-contained, and safe to open.
//!
//! Loading it needs Chromium. Where there is none the test says SKIPPED, and with
//! `PLIMSOLL_REQUIRE=browser` a skip is a failure.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::Command;

use plimsoll_lab::claim::{Article, Claim, Holds};
use plimsoll_lab::report::{html, page};
use plimsoll_lab::result::ExperimentResult;
use plimsoll_lab::warning::{Kind, Warning};

const HOSTILE: &str = "</title></style></svg><script>document.title='owned'</script><img src=x \
                       onerror=alert(1)>\"'&amp;";

#[test]
fn results_of_version_1_are_shown_with_a_chart_a_table_and_the_answer() {
    let page = html::render(&saved());
    for result in saved() {
        assert!(page.contains(&result.question), "{}", result.question);
        for arm in &result.arms {
            assert!(page.contains(&arm.name), "{}", arm.name);
        }
    }
    assert!(page.contains("Where the time goes") && page.contains("Stalls over time"));
    assert!(page.contains("<html lang=\"en\">") && page.contains("prefers-color-scheme: dark"));
}

#[test]
fn claims_stand_beside_what_was_found_and_results_without_them_are_shown_as_well() {
    let mut result = saved().remove(0);
    assert!(result.claims.is_empty() && !html::render(&[result.clone()]).contains("Beside"));
    let (claim, here) = ("an fsync of nothing costs <2 ms>".to_owned(), "10.7 µs".to_owned());
    let claim = Claim::new(Article::Costly, claim, here, Holds::DoesNotHold);
    result.claims = vec![Claim { claimed_ns: Some(2_000_000), ..claim }];
    let page = html::render(&[result]).replace('\u{a0}', " ");
    for part in [
        "Beside the article",
        "the article: 2 ms",
        "&quot;fsync is Costly, But Don't Avoid It&quot; claims that",
        "an fsync of nothing costs &lt;2 ms&gt;",
        "10.7 µs: <strong>does not hold here</strong>",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn the_page_fetches_nothing_and_runs_nothing() {
    let page = html::render(&saved());
    assert_fetches_nothing(&page);
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn hostile_texts_stay_texts() {
    let page = html::render(&[hostile()]);
    assert_fetches_nothing(&page);
    assert!(!page.contains("<img") && !page.contains("onerror=alert(1)>"));
    assert!(page.contains("&lt;script&gt;"));
    assert_eq!(page.matches("</title>").count(), 1 + page.matches("<title id=").count());
    assert_eq!(page.matches("</style>").count(), 1);
}

#[test]
fn an_invalid_arm_is_said_loudly_before_any_answer() {
    let mut result = saved().remove(0);
    assert!(!html::render(&[result.clone()]).contains("INVALID: "));
    result.arms[1].valid = false;
    result.arms[1].warnings = vec![Warning::new(Kind::PromiseContradicted, "no flush was sent")];
    let page = html::render(&[result.clone()]);
    let (loud, answer) = (page.find("INVALID: 1 of 3"), page.find(&result.question));
    assert!(loud.unwrap() < answer.unwrap());
    assert!(page.contains("no flush was sent"));
}

#[test]
fn an_experiment_that_nobody_knows_has_a_chart_and_a_table() {
    let mut result = saved().remove(1);
    result.experiment = "of-tomorrow".to_owned();
    let page = html::render(&[result]);
    assert!(page.matches("<svg viewBox").count() > 4);
    assert!(page.contains("All figures: 2 arms"));
}

#[test]
fn values_choose_their_charts() {
    let mut result = saved().remove(0);
    result.experiment = "of-tomorrow".to_owned();
    let of = |pairs: &[(&str, f64)]| -> BTreeMap<String, f64> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
    };
    for (number, arm) in (0u8..).zip(&mut result.arms) {
        let factor = f64::from(1u32 << (4 * number));
        arm.name = format!("{factor} MiB/background");
        arm.values = of(&[
            ("at_risk_bytes", 1_048_576.0 * factor),
            ("at_risk_ms", factor),
            ("cost_over_end", 1.0 + 1.0 / factor),
            ("writers", factor),
            ("records_per_s", 1000.0 * factor),
            ("per_file_us", 10.0 * factor),
        ]);
    }
    let page = html::render(&[result]);
    for title in ["against what may be lost", "records per second, by writers", "Cost per file"] {
        assert!(page.contains(title), "{title}");
    }
    assert!(page.contains("knee: 16 MiB"));
}

/// A flush with nothing cached has no place on a logarithmic axis of bytes: it is a line across.
#[test]
fn flushes_are_drawn_against_what_is_cached() {
    let mut result = saved().remove(0);
    result.experiment = "cache-flush".to_owned();
    for (arm, (bytes, p50_us)) in
        result.arms.iter_mut().zip([(0.0, 19), (4096.0, 21), (8192.0, 45)])
    {
        arm.values = BTreeMap::from([("cached_bytes".to_owned(), bytes)]);
        let summary = &mut arm.summaries[0];
        summary.p50_ns = Some(p50_us * 1000);
        summary.p50_ci95_ns = Some((p50_us * 900, p50_us * 1100));
        (summary.p90_ns, summary.p99_ns) = (Some(p50_us * 2000), None);
    }
    let page = html::render(&[result.clone()]);
    for part in [
        "What a flush costs, by what is cached",
        "nothing cached: 19.0 µs",
        "median: 21.0 µs at 4 KiB, 45.0 µs at 8 KiB",
        "p90: 42.0 µs at 4 KiB",
        "class=\"interval\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    result.arms.truncate(2);
    assert!(!html::render(&[result]).contains("by what is cached"), "one point is no curve");
}

/// Arms that belong to neither curve once made a third one, an upright line at the right edge, and
/// the knee was computed though the arms say where it is.
#[test]
fn the_knee_is_where_the_arms_say_and_what_belongs_to_no_curve_is_not_drawn() {
    let mut result = saved().remove(0);
    result.experiment = "sync-interval".to_owned();
    let arms = [("never", 64.0, 0.0), ("1MiB/writer", 1.0, 1.0), ("2MiB/background", 4.0, 1.0)];
    for (arm, (name, mib, is_knee)) in result.arms.iter_mut().zip(arms) {
        arm.name = name.to_owned();
        let values = [("at_risk_bytes", mib * 1_048_576.0), ("cost_over_end", 1.5)];
        arm.values = values.map(|(name, value)| (name.to_owned(), value)).into();
        arm.values.insert("is_knee".to_owned(), is_knee);
    }
    let page = html::render(&[result]);
    assert!(page.contains("knee, writer: 1 MiB") && page.contains("knee, background: 4 MiB"));
    assert!(page.contains("Not drawn: never 1.50."));
}

#[test]
fn no_results_are_a_page_too() {
    assert!(html::render(&[]).contains("No results."));
}

#[test]
fn a_saved_page_replaces_the_one_before_and_leaves_nothing_beside_it() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("report.html");
    page::save(&path, "before").unwrap();
    page::save(&path, "after").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "after");
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 1);
    let failed = page::save(&tmp.path().join("none/report.html"), "").unwrap_err().to_string();
    assert!(failed.contains("report.html could not be saved"), "{failed}");
}

#[test]
fn a_browser_shows_headings_and_charts_and_complains_of_nothing() {
    let Some(browser) = browser() else {
        skip("no chromium");
        return;
    };
    let tmp = tempfile::tempdir().unwrap();
    let mut results = saved();
    results.push(hostile());
    let path = tmp.path().join("page.html");
    page::save(&path, &html::render(&results)).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .args(["--log-level=0", "--dump-dom"])
        .arg(format!("--user-data-dir={}", tmp.path().join("profile").display()))
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains(":CONSOLE"), "{said}");
    let dom = String::from_utf8_lossy(&output.stdout);
    for heading in ["Verdict", "How to read the ranges", "Environment"] {
        assert!(dom.contains(&format!("{heading}</h2>")), "{heading}");
    }
    assert_eq!(dom.matches("<section").count(), 3 + results.len(), "nothing was swallowed");
    assert!(dom.matches("role=\"img\"").count() >= 12, "{}", dom.matches("role=\"img\"").count());
    assert!(!dom.contains("<title>owned") && !dom.contains("<script") && !dom.contains("<img"));
}

/// The long name of an arm in the reason of a claim once made the page wider than a phone.
#[test]
fn a_page_of_long_names_is_no_wider_than_a_phone() {
    let Some(browser) = browser() else {
        skip("no chromium");
        return;
    };
    let tmp = tempfile::tempdir().unwrap();
    let mut result = saved().remove(0);
    let because =
        format!("{} was measured on a busy machine", "o_direct+o_dsync/overwritten/".repeat(3));
    let claim = Claim::new(Article::MacOs, "it is dear".into(), "it is".into(), Holds::Undecided);
    result.claims = vec![Claim { unknown_because: Some(because), ..claim }];
    // The page itself may run nothing, so a copy of it that may is measured in a frame.
    let script = "<script>onload = () => parent.postMessage('wide: ' + \
                  document.documentElement.scrollWidth, '*')</script></body>";
    let page = html::render(&[result]).replace("default-src 'none'", "default-src 'unsafe-inline'");
    fs::write(tmp.path().join("page.html"), page.replace("</body>", script)).unwrap();
    let frame = "<p id=p></p><iframe src=page.html width=390 height=800 style='border:0'></iframe>\
                 <script>onmessage = said => p.textContent = said.data</script>";
    fs::write(tmp.path().join("frame.html"), frame).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"])
        .args(["--window-size=800,1000", "--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", tmp.path().join("profile").display()))
        .arg(format!("file://{}", tmp.path().join("frame.html").display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let wide = dom.split("wide: ").nth(1).unwrap_or_else(|| panic!("not measured: {dom}"));
    let wide: u32 = wide.split('<').next().unwrap().parse().unwrap();
    assert!(wide <= 390, "{wide} pixels");
}

/// Small results as they were saved: golden files of version 1.
fn saved() -> Vec<ExperimentResult> {
    let texts = [
        include_str!("../testdata/result-v1-sync-cost.json"),
        include_str!("../testdata/result-v1-write-during-sync.json"),
    ];
    texts.map(|json| ExperimentResult::parse(json).unwrap()).into()
}

/// A result of somebody who wants more than to show figures.
fn hostile() -> ExperimentResult {
    let mut result = saved().remove(1);
    let hostile = || HOSTILE.to_owned();
    result.experiment = hostile();
    result.question = hostile();
    result.source = hostile();
    result.profile = hostile();
    result.started_at = hostile();
    result.parameters = vec![hostile()];
    result.answer = vec![hostile()];
    result.claims = vec![Claim {
        article: u32::MAX,
        title: hostile(),
        claim: hostile(),
        claimed_ns: Some(0),
        here: hostile(),
        verdict: Holds::Undecided,
        unknown_because: Some(hostile()),
    }];
    result.warnings = vec![Warning::new(Kind::Noisy, hostile())];
    result.environment.kernel = Some(hostile());
    result.environment.dirty_limits = vec![hostile()];
    for device in &mut result.environment.devices {
        device.name = hostile();
    }
    for (number, arm) in result.arms.iter_mut().enumerate() {
        arm.name = format!("{number}{HOSTILE}");
        arm.layout = hostile();
        arm.promise = hostile();
        arm.warnings = vec![Warning::new(Kind::BytesMissing, hostile())];
        arm.valid = number == 0;
        arm.values =
            BTreeMap::from([(hostile(), f64::MAX), ("at_risk_bytes".to_owned(), f64::MIN)]);
        for summary in &mut arm.summaries {
            summary.measure = hostile();
            (summary.min_ns, summary.max_ns) = (Some(u64::MAX), Some(0));
            summary.p99_ns = Some(0);
            summary.histogram = vec![(0, u64::MAX), (0, u64::MAX)];
        }
        if let Some(series) = &mut arm.series {
            series.bucket_ms = u64::MAX;
            series.writes.push((u64::MAX, 0, true));
            series.syncs.push((u64::MAX, u64::MAX, true));
        }
    }
    result
}

fn assert_fetches_nothing(page: &str) {
    let bare: String = page.chars().filter(|letter| !letter.is_whitespace()).collect();
    for fetch in ["src=\"", "href=\"http", "href=\"//", "url(http", "url(\"", "url(//", "@import"] {
        assert!(!bare.contains(fetch), "{fetch}");
    }
    assert!(!page.contains("<script"), "no script is needed");
    for link in page.split("href=\"").skip(1) {
        assert!(link.starts_with('#') || link.starts_with("data:,"), "{}", &link[..40]);
    }
}

fn browser() -> Option<&'static str> {
    let works = |name: &&str| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find(works)
}

fn skip(why: &str) {
    let required = std::env::var("PLIMSOLL_REQUIRE").unwrap_or_default();
    assert!(!required.contains("browser"), "PLIMSOLL_REQUIRE={required}, but: {why}");
    // Past the capture of the test harness, which hides what a passing test prints.
    let said = format!("\nSKIPPED (needs chromium): {why}\n");
    std::io::stderr().write_all(said.as_bytes()).ok();
}
