//! What can be set for a topic: it means what it says, or is refused.

use plimsoll_server::control::{FlushClass, InvalidSetting, SETTINGS, Setting, TopicSettings};

use super::settings;

#[test]
fn every_default_is_a_value_that_can_be_set() {
    for setting in &SETTINGS {
        let mut settings = TopicSettings::default();
        assert_eq!(settings.value(setting), (setting.default, false));
        settings.set(setting.name, Some(setting.default)).unwrap();
        assert_eq!(settings.value(setting), (setting.default, true));
        settings.set(setting.name, None).unwrap();
        assert_eq!(settings, TopicSettings::default());
    }
    assert!(SETTINGS.is_sorted_by_key(|setting| setting.name));
}

#[test]
fn what_is_unknown_or_cannot_be_kept_is_refused_and_changes_nothing() {
    for (name, value, said) in [
        ("segment.ms", "1", "there is no setting \"segment.ms\""),
        ("retention.ms", "-2", "a number from -1"),
        ("retention.ms", "soon", "a number from -1"),
        ("compression.type", "zstd", "one of producer"),
        ("flush.messages", "10", "use 1, or flush.ms"),
        ("min.insync.replicas", "0", "a number from 1"),
        ("message.timestamp.type", "createtime", "one of CreateTime LogAppendTime"),
    ] {
        let mut settings = TopicSettings::default();
        let error = settings.set(name, Some(value)).unwrap_err().to_string();
        assert!(error.contains(said), "{name}={value}: {error}");
        assert_eq!(settings, TopicSettings::default());
    }
    let unknown = Setting::find("nothing").err();
    assert_eq!(unknown, Some(InvalidSetting::Unknown("nothing".into())));
}

#[test]
fn settings_mean_what_they_say() {
    let plain = TopicSettings::default();
    assert_eq!(plain.flush_class(), FlushClass::Shared);
    assert_eq!(plain.flush_ms(), None);
    assert!(!plain.committed_is_durable());
    let of_partition = plain.of_partition();
    assert_eq!(of_partition.retention_ms, Some(604_800_000));
    assert_eq!((of_partition.retention_bytes, of_partition.append_timestamps), (None, false));

    let set = settings(&[
        ("cleanup.policy", "compact"),
        ("flush.messages", "1"),
        ("flush.ms", "50"),
        ("max.message.bytes", "2000"),
        ("message.timestamp.type", "LogAppendTime"),
        ("plimsoll.read.committed", "durable"),
    ]);
    assert_eq!(set.flush_class(), FlushClass::Durable);
    assert_eq!(set.flush_ms(), Some(50));
    assert!(set.committed_is_durable());
    let of_partition = set.of_partition();
    // What is compacted is kept whole.
    assert_eq!((of_partition.retention_ms, of_partition.batch_bytes_max), (None, 2000));
    assert!(of_partition.append_timestamps);
    assert_eq!(settings(&[("retention.ms", "-1")]).of_partition().retention_ms, None);
}
