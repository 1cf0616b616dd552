//! DescribeLogDirs: how many bytes partitions take, and where.

use crate::kafka::error::ErrorCode;

message! {
    DescribeLogDirsRequest {
        /// None: all.
        1.. topics: Option<Vec<DescribeLogDirsTopic>>,
    }

    DescribeLogDirsTopic {
        1.. topic: String,
        1.. partitions: Vec<i32>,
    }

    DescribeLogDirsResponse {
        1.. throttle_time_ms: i32,
        1.. results: Vec<DescribedLogDir>,
    }

    DescribedLogDir {
        1.. error_code: ErrorCode,
        1.. log_dir: String,
        1.. topics: Vec<LogDirTopic>,
    }

    LogDirTopic {
        1.. name: String,
        1.. partitions: Vec<LogDirPartition>,
    }

    LogDirPartition {
        1.. partition_index: i32,
        1.. partition_size: i64,
        1.. offset_lag: i64,
        1.. is_future_key: bool,
    }
}
