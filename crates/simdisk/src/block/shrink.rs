//! From a state that does harm to the fewest lost writes that still do: delta debugging (ddmin, by
//! Zeller and Hildebrandt) over what was lost.

use super::states::{Loss, Mode, State};

/// Finds a smaller set of `losses` at `point` that ends like all of them do, such that no single one
/// of them can be left out. `ends` says how a state ends, `None` if it does no harm; what ends otherwise than
/// the first state is another failure, and not followed. It is asked for as few states as that takes,
/// and first for all losses: `None` if that does no harm.
///
/// Stops early when `ends` returns an error.
pub fn shrink<K: PartialEq, E>(
    point: usize,
    losses: Vec<Loss>,
    mut ends: impl FnMut(&State) -> Result<Option<K>, E>,
) -> Result<Option<State>, E> {
    let state = |losses: &[Loss]| State { point, mode: Mode::Without(losses.to_vec()) };
    let Some(wanted) = ends(&state(&losses))? else {
        return Ok(None);
    };
    let mut fails = |state: &State| Ok(ends(state)?.as_ref() == Some(&wanted));
    if fails(&state(&[]))? {
        // Nothing needs to be lost for it.
        return Ok(Some(state(&[])));
    }
    let left = fewest(losses, |losses| fails(&state(losses)))?;
    Ok(Some(state(&left)))
}

/// The fewest of `all` that are enough, as all of them are, such that no single one can be left out.
pub(super) fn fewest<T: Clone, E>(
    all: Vec<T>,
    mut is_enough: impl FnMut(&[T]) -> Result<bool, E>,
) -> Result<Vec<T>, E> {
    let mut left = all;
    let mut parts = 2;
    while left.len() > 1 {
        let size = left.len().div_ceil(parts);
        let mut smaller = None;
        for number in 0..left.len().div_ceil(size) {
            let part = number * size..((number + 1) * size).min(left.len());
            // Only this part; or all but this part.
            let only = left[part.clone()].to_vec();
            let mut rest = left.clone();
            rest.drain(part);
            if only.len() < left.len() && is_enough(&only)? {
                smaller = Some((only, 2));
                break;
            }
            if parts > 2 && !rest.is_empty() && is_enough(&rest)? {
                smaller = Some((rest, (parts - 1).max(2)));
                break;
            }
        }
        match smaller {
            Some((smaller, next)) => (left, parts) = (smaller, next),
            None if parts >= left.len() => break,
            None => parts = (parts * 2).min(left.len()),
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn losses(requests: impl IntoIterator<Item = u32>) -> Vec<Loss> {
        requests.into_iter().map(|request| Loss { request, bytes: None }).collect()
    }

    fn lost(state: &State) -> Vec<u32> {
        let Mode::Without(losses) = &state.mode else { panic!("{state}") };
        losses.iter().map(|loss| loss.request).collect()
    }

    proptest! {
        #[test]
        fn what_is_left_is_what_is_needed(
            all in 1u32..60, needed in prop::collection::btree_set(0u32..60, 0..4)
        ) {
            let mut asked = 0;
            let found = shrink(9, losses(0..all), |state| {
                asked += 1;
                let lost = lost(state);
                let fails = needed.iter().all(|request| lost.contains(request));
                Ok::<_, Infallible>(fails.then_some(()))
            });
            let found = found.unwrap();
            if needed.iter().all(|&request| request < all) {
                let found = lost(&found.unwrap());
                prop_assert_eq!(found, needed.iter().copied().collect::<Vec<_>>());
                prop_assert!(asked < 4 * all + 60, "{} questions", asked);
            } else {
                prop_assert!(found.is_none());
            }
        }
    }

    #[test]
    fn a_state_that_does_no_harm_is_not_shrunk() {
        let found = shrink(9, losses(0..5), |_| Ok::<_, Infallible>(None::<()>)).unwrap();
        assert_eq!(found, None);
    }

    #[test]
    fn it_does_not_slide_to_another_failure() {
        // Without 3 and 7 something is lost. Without 3 alone it does not mount, which is easier to have.
        let found = shrink(9, losses(0..10), |state| {
            let lost = lost(state);
            Ok::<_, Infallible>(match (lost.contains(&3), lost.contains(&7)) {
                (true, true) => Some("lost"),
                (true, false) => Some("not-mounted"),
                (false, _) => None,
            })
        });
        assert_eq!(lost(&found.unwrap().unwrap()), [3, 7]);
    }
}
