//! [`Settings`]: the bounds of groups, named as Kafka names them where it has them.

/// What a coordinator allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The shortest session a member may ask for (`group.min.session.timeout.ms`).
    pub session_ms_min: i32,
    /// The longest (`group.max.session.timeout.ms`).
    pub session_ms_max: i32,
    /// How long an empty group waits for more members once the first has come
    /// (`group.initial.rebalance.delay.ms`).
    pub initial_delay_ms: u32,
    /// Members of a group (`group.max.size`); so many more may have an id and not have joined yet.
    pub members_max: usize,
    /// Bytes of all members of a group, and again of all that is assigned to them.
    pub group_bytes_max: usize,
    /// Groups, empty ones too.
    pub groups_max: usize,
    /// Partitions of which a group commits offsets. Commits in flight may pass it once.
    pub offsets_max: usize,
    /// Bytes of the text that is committed with an offset (`offset.metadata.max.bytes`).
    pub offset_metadata_bytes_max: usize,
    /// How long the offsets of an empty group are kept (`offsets.retention.minutes`).
    pub offsets_retention_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            session_ms_min: 6_000,
            session_ms_max: 1_800_000,
            initial_delay_ms: 3_000,
            members_max: 1_000,
            group_bytes_max: 1 << 20,
            groups_max: 10_000,
            offsets_max: 100_000,
            offset_metadata_bytes_max: 4_096,
            offsets_retention_ms: 7 * 24 * 3_600_000,
        }
    }
}
