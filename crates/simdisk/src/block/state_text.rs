//! A state as text, such as `point=688,mode=subset,seed=2`: as it is printed, typed and saved.

use std::fmt;
use std::str::FromStr;

use super::states::{Loss, Mode, State};

/// A sector: nothing of a device is smaller.
const SECTOR: u32 = 512;
/// What a drive with physical sectors of 4 KiB writes whole.
const TEAR_DEFAULT: u32 = 4096;
/// Numbers in a list of losses: more than any trace has pending at once, and a bound for a text.
const LOSSES_MAX: usize = 1 << 20;

impl fmt::Display for State {
    /// `point=688,mode=subset,seed=2`: what can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "point={},", self.point)?;
        match &self.mode {
            Mode::Durable => f.write_str("mode=durable"),
            Mode::Arrived => f.write_str("mode=arrived"),
            Mode::Subset { seed } => write!(f, "mode=subset,seed={seed}"),
            Mode::Torn { seed, tear_bytes: TEAR_DEFAULT } => write!(f, "mode=torn,seed={seed}"),
            Mode::Torn { seed, tear_bytes } => {
                write!(f, "mode=torn,seed={seed},tear={tear_bytes}")
            }
            Mode::Without(losses) => {
                f.write_str("mode=without,lost=")?;
                for (number, loss) in losses.iter().enumerate() {
                    let plus = if number == 0 { "" } else { "+" };
                    write!(f, "{plus}{loss}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Loss {
    /// `12`, or `12[4096-8192]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bytes {
            None => write!(f, "{}", self.request),
            Some((start, end)) => write!(f, "{}[{start}-{end}]", self.request),
        }
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut point, mut mode, mut seed, mut tear, mut lost) = (None, None, None, None, None);
        for field in text.split(',') {
            let (name, value) = field
                .split_once('=')
                .ok_or_else(|| format!("'{field}' is not of the form name=value"))?;
            let number = || value.parse::<u64>().map_err(|_no| format!("{name}: not a number"));
            match name {
                "point" => {
                    let point_read = usize::try_from(number()?);
                    point = Some(point_read.map_err(|_large| "point: too large".to_owned())?);
                }
                "mode" => mode = Some(value),
                "seed" => seed = Some(number()?),
                "tear" => tear = Some(tear_bytes(value)?),
                "lost" => lost = Some(losses(value)?),
                other => return Err(format!("'{other}' is not point, mode, seed, tear or lost")),
            }
        }
        let point = point.ok_or("it has no point=")?;
        let seeded = || seed.ok_or("this mode needs seed=");
        let mode = match mode.ok_or("it has no mode=")? {
            "durable" => Mode::Durable,
            "arrived" => Mode::Arrived,
            "subset" => Mode::Subset { seed: seeded()? },
            "torn" => Mode::Torn { seed: seeded()?, tear_bytes: tear.unwrap_or(TEAR_DEFAULT) },
            "without" => Mode::Without(lost.ok_or("this mode needs lost=")?),
            other => {
                let known = "durable, arrived, subset, torn or without";
                return Err(format!("'{other}' is not {known}"));
            }
        };
        Ok(Self { point, mode })
    }
}

/// A power of two from a sector to 1 MiB.
fn tear_bytes(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(bytes) if bytes.is_power_of_two() && (SECTOR..=1 << 20).contains(&bytes) => Ok(bytes),
        _ => Err("tear: not a power of two from 512 to 1048576".to_owned()),
    }
}

fn losses(text: &str) -> Result<Vec<Loss>, String> {
    let mut losses = Vec::new();
    for item in text.split('+').filter(|item| !item.is_empty()) {
        let wrong = || format!("lost: '{item}' is not like 12 or 12[0-4096]");
        let (request, bytes) = match item.split_once('[') {
            None => (item, None),
            Some((request, range)) => {
                let range = range.strip_suffix(']').ok_or_else(wrong)?;
                let (start, end) = range.split_once('-').ok_or_else(wrong)?;
                let number = |text: &str| text.parse::<u32>().map_err(|_no| wrong());
                let (start, end) = (number(start)?, number(end)?);
                if start >= end {
                    return Err(wrong());
                }
                (request, Some((start, end)))
            }
        };
        let request = request.parse().map_err(|_no| wrong())?;
        losses.push(Loss { request, bytes });
        if losses.len() > LOSSES_MAX {
            return Err("lost: too many".to_owned());
        }
    }
    Ok(losses)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_makes_a_state_panic(text in ".{0,60}") {
            let _either: Result<State, String> = text.parse();
        }
    }

    #[test]
    fn a_wrong_state_says_what_is_wrong() {
        let wrong = |text: &str| text.parse::<State>().unwrap_err();
        assert!(wrong("688").contains("name=value"));
        assert!(wrong("point=1,mode=subset").contains("seed="));
        assert!(wrong("point=1,mode=half").contains("torn"));
        assert!(wrong("point=1,mode=torn,seed=1,tear=1000").contains("power of two"));
        assert!(wrong("point=1,mode=without,lost=3[9-2]").contains("12[0-4096]"));
    }
}
