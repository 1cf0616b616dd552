//! DescribeConfigs and IncrementalAlterConfigs: what topics and brokers are told to do.

use crate::kafka::error::ErrorCode;

message! {
    DescribeConfigsRequest {
        1.. resources: Vec<DescribeConfigsResource>,
        1.. include_synonyms: bool,
    }

    DescribeConfigsResource {
        /// 2: a topic. 4: a broker.
        1.. resource_type: i8,
        1.. resource_name: String,
        /// None: all.
        1.. configuration_keys: Option<Vec<String>>,
    }

    DescribeConfigsResponse {
        1.. throttle_time_ms: i32,
        1.. results: Vec<DescribedConfigs>,
    }

    DescribedConfigs {
        1.. error_code: ErrorCode,
        1.. error_message: Option<String>,
        1.. resource_type: i8,
        1.. resource_name: String,
        1.. configs: Vec<DescribedConfig>,
    }

    DescribedConfig {
        1.. name: String,
        1.. value: Option<String>,
        1.. read_only: bool,
        1.. config_source: i8 = -1,
        1.. is_sensitive: bool,
        1.. synonyms: Vec<ConfigSynonym>,
    }

    ConfigSynonym {
        1.. name: String,
        1.. value: Option<String>,
        1.. source: i8,
    }

    IncrementalAlterConfigsRequest {
        0.. resources: Vec<AlterableResource>,
        0.. validate_only: bool,
    }

    AlterableResource {
        0.. resource_type: i8,
        0.. resource_name: String,
        0.. configs: Vec<AlterableConfig>,
    }

    AlterableConfig {
        0.. name: String,
        /// 0: set. 1: delete. 2: append. 3: subtract.
        0.. config_operation: i8,
        0.. value: Option<String>,
    }

    IncrementalAlterConfigsResponse {
        0.. throttle_time_ms: i32,
        0.. responses: Vec<AlteredResource>,
    }

    AlteredResource {
        0.. error_code: ErrorCode,
        0.. error_message: Option<String>,
        0.. resource_type: i8,
        0.. resource_name: String,
    }
}
