//! A broker of three whose disk fails.

use super::cluster::{Cluster, in_time, numbers, read, run};

#[test]
fn a_broker_whose_disk_fails_has_others_lead_says_so_and_comes_back() {
    let cluster = Cluster::found();
    let mut first = cluster.start_limited(1);
    let [second, third] = [2, 3].map(|node| cluster.start(node));
    in_time("a topic with three copies", || {
        run(&first, "topic create first", "")
            .or_else(|why| if why.contains("exists") { Ok(String::new()) } else { Err(why) })
    });
    for (base, at) in [(0, &first), (100, &second), (200, &third)] {
        in_time("each takes records", || run(at, "produce first", &numbers(base..base + 100)));
    }
    first.fail_disk();
    in_time("two go on", || run(&second, "produce first", &numbers(300..400)));
    let status = in_time("it ends", || first.ended().ok_or_else(|| first.news()));
    assert_eq!(status, 1, "{}", first.news());
    assert!(first.news().contains("counts as failed"), "{}", first.news());
    in_time("they go on", || run(&third, "produce first", &numbers(400..500)));
    // What it had written is there still, and the rest comes from the others.
    let first = cluster.start(1);
    in_time("it takes records again", || run(&first, "produce first", &numbers(500..600)));
    let found = in_time("all is there", || read(&first));
    assert!((0..600).all(|number| found.contains(&number)), "{found:?}");
    for broker in [first, second, third] {
        assert_eq!(broker.stop(), Some(0));
    }
}
