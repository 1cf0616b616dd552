//! What requests and responses say, a file for each family of APIs.
//!
//! A message is written down as a table: since which version (and until which) it has a field, the
//! field's name as Kafka's own schema has it, its type, and what it is in versions without it where
//! that is not zero, empty or none.
//!
//! ```text
//! 0..    topics: Option<Vec<String>>,                     in every version
//! 4..    allow_auto_topic_creation: bool = true,          from 4 on, true before
//! 8..=10 include_cluster_authorized_operations: bool,     in 8, 9 and 10
//! 10.. @0 current_leader: CurrentLeader,                  from 10 on, with tag 0, unless it is as it is without
//! ```
//!
//! Only versions in the [band](super::band) are told, so fields that begin above it are not here.
#![expect(missing_docs, reason = "fields mean what they mean in Kafka's schema, by the same names")]

/// Makes structs of tables, with their form on the wire.
macro_rules! message {
    ($(
        $(#[$doc:meta])*
        $name:ident {$(
            $(#[$note:meta])*
            $since:literal $dots:tt $($until:literal)? $(@$tag:literal)? $field:ident: $type:ty $(= $absent:expr)?,
        )*}
    )+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$note])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: message!(@absent $($absent)?),)* }
            }
        }

        impl $crate::kafka::wire::Wire for $name {
            fn least_bytes(layout: $crate::kafka::wire::Layout) -> usize {
                usize::from(layout.flexible)
                $(+ if layout.places(message!(@tag $($tag)?), $since $dots $($until)?) {
                    <$type as $crate::kafka::wire::Wire>::least_bytes(layout)
                } else {
                    0
                })*
            }

            fn read(
                from: &mut $crate::kafka::wire::Reader,
            ) -> Result<Self, $crate::kafka::wire::Malformed> {
                let layout = from.layout();
                let mut message = Self {
                    $($field: if layout.places(message!(@tag $($tag)?), $since $dots $($until)?) {
                        $crate::kafka::wire::Wire::read(from)?
                    } else {
                        message!(@absent $($absent)?)
                    },)*
                };
                let _ = (&mut message, layout); // a message may have no fields
                from.tags(|tag, from| {
                    let _ = (tag, &from);
                    $(if message!(@tag $($tag)?) == Some(tag) && layout.has($since $dots $($until)?) {
                        message.$field = $crate::kafka::wire::Wire::read(from)?;
                        return Ok(true);
                    })*
                    Ok(false)
                })?;
                Ok(message)
            }

            fn write(&self, to: &mut $crate::kafka::wire::Writer) {
                $(if to.layout().places(message!(@tag $($tag)?), $since $dots $($until)?) {
                    $crate::kafka::wire::Wire::write(&self.$field, to);
                })*
                to.tags(&self.tags(to.layout()));
            }
        }

        impl $name {
            fn tags(&self, layout: $crate::kafka::wire::Layout) -> $crate::kafka::tags::Tags {
                let mut tags = $crate::kafka::tags::Tags::of(layout);
                let _ = &mut tags; // a message may have no fields
                $(if let Some(tag) = message!(@tag $($tag)?)
                    && layout.flexible
                    && layout.has($since $dots $($until)?)
                {
                    let absent: $type = message!(@absent $($absent)?);
                    tags.note(tag, &self.$field, &absent);
                })*
                tags
            }
        }

        #[cfg(test)]
        impl $crate::kafka::tests::sample::Sample for $name {
            fn sample(dice: &mut $crate::kafka::tests::sample::Dice<'_>) -> Self {
                let _ = &dice; // a message may have no fields
                Self {
                    $($field: if dice.layout.has($since $dots $($until)?) {
                        $crate::kafka::tests::sample::Sample::sample(dice)
                    } else {
                        message!(@absent $($absent)?)
                    },)*
                }
            }

            fn show(&self, name: &str, lines: &mut $crate::kafka::tests::sample::Lines) {
                lines.begin(name);
                $(if lines.layout.places(message!(@tag $($tag)?), $since $dots $($until)?) {
                    let name = stringify!($field);
                    $crate::kafka::tests::sample::Sample::show(&self.$field, name, lines);
                })*
                let tags = self.tags(lines.layout);
                lines.tags(&tags);
                $(if let Some(value) = tags.value(message!(@tag $($tag)?)) {
                    lines.tag(value);
                    let name = stringify!($field);
                    $crate::kafka::tests::sample::Sample::show(&self.$field, name, lines);
                })*
                lines.end();
            }
        }
    )+};
    (@tag $tag:literal) => { Some::<u32>($tag) };
    (@tag) => { None::<u32> };
    (@absent $absent:expr) => { $absent };
    (@absent) => { Default::default() };
}

mod configs;
mod fetch;
mod group;
mod groups;
mod log_dirs;
mod metadata;
mod offsets;
mod placing;
mod produce;
mod topics;
mod versions;

pub use configs::*;
pub use fetch::*;
pub use group::*;
pub use groups::*;
pub use log_dirs::*;
pub use metadata::*;
pub use offsets::*;
pub use placing::*;
pub use produce::*;
pub use topics::*;
pub use versions::*;
