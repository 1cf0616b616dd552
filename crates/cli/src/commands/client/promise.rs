//! What a topic promises, in words.

use plimsoll_server::control::{FlushClass, TopicSettings};

/// What an acknowledgement means under these settings of a Plimsoll broker.
pub(super) fn words(settings: &TopicSettings) -> String {
    let mut words = match (settings.flush_class(), settings.flush_ms()) {
        (FlushClass::Durable, _) => "a record is durable before it is acknowledged".to_owned(),
        (FlushClass::Shared, Some(ms)) => {
            format!(
                "a record is acknowledged before it is durable; a sync of it begins within {ms} ms"
            )
        }
        (FlushClass::Shared, None) => {
            "a record is acknowledged before it is durable; syncs run in the background".to_owned()
        }
    };
    if settings.committed_is_durable() {
        words += "; read_committed shows only what is durable";
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_follows_from_the_settings() {
        let promise = |set: &[(&str, &str)]| {
            let mut settings = TopicSettings::default();
            for (name, value) in set {
                settings.set(name, Some(value)).unwrap();
            }
            words(&settings)
        };
        assert!(promise(&[]).contains("acknowledged before it is durable; syncs"));
        assert!(promise(&[("flush.ms", "50")]).contains("a sync of it begins within 50 ms"));
        let strict = promise(&[("flush.messages", "1"), ("plimsoll.read.committed", "durable")]);
        assert!(
            strict.starts_with("a record is durable before it is acknowledged; read_committed")
        );
    }
}
