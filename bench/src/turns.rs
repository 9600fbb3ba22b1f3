//! Two contenders that take turns, so that whatever else the machine does meets both alike.

/// What each of two contenders gave in its turn.
pub struct Pair<T> {
    /// Of the first.
    pub first: T,
    /// Of the second.
    pub second: T,
}

/// Lets each of two take its turn, `turns` times; they are told its number. Which of them begins alternates, so that being
/// second counts for neither.
///
/// # Errors
/// The first error of either.
pub fn take_turns<T>(
    turns: usize,
    mut first: impl FnMut(usize) -> anyhow::Result<T>,
    mut second: impl FnMut(usize) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<Pair<T>>> {
    let take = |turn: usize| {
        if turn.is_multiple_of(2) {
            let first = first(turn)?;
            anyhow::Ok(Pair { first, second: second(turn)? })
        } else {
            let second = second(turn)?;
            anyhow::Ok(Pair { first: first(turn)?, second })
        }
    };
    (0..turns).map(take).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_one_that_begins_alternates_and_results_stay_with_theirs() {
        let order = RefCell::new(Vec::new());
        let note = |name: &'static str| {
            let order = &order;
            move |turn: usize| {
                order.borrow_mut().push(name);
                anyhow::Ok((name, turn))
            }
        };
        let pairs = take_turns(3, note("a"), note("b")).unwrap();
        assert_eq!(*order.borrow(), ["a", "b", "b", "a", "a", "b"]);
        assert!(
            pairs
                .iter()
                .enumerate()
                .all(|(turn, pair)| (pair.first, pair.second) == (("a", turn), ("b", turn)))
        );
        assert!(take_turns(1, note("a"), |_| -> anyhow::Result<_> { anyhow::bail!("down") }).is_err());
    }
}
