"""What the workload of chapters and its check agree on."""

# A chapter ends behind some rounds; each shard has its own.
SERVE = ("--chapter-bytes", "6KiB")
RETENTION_BYTES = 1_000_000
# A topic's settings, and whether what it acknowledges is durable.
TOPICS = {
    "durable": (["flush.messages=1"], True),
    "shared": ([], False),
    "short": ([f"retention.bytes={RETENTION_BYTES}"], False),
    "wide": (["flush.messages=1", f"retention.bytes={RETENTION_BYTES}"], True),
    "trimmed": (["flush.messages=1"], True),
    "keyed": (["flush.messages=1", "cleanup.policy=compact", "delete.retention.ms=1000"], True),
    "fleeting": (["flush.messages=1"], True),
}
KEEP_LITTLE = ("short", "wide")
