//! The sessions of a network: one for all shapes of its input, or one each.
//!
//! ONNX Runtime plans each convolution on CUDA for the shape of its input and keeps the last plan alone (`Conv::UpdateState`
//! of its CUDA provider compares the shape with that of the call before): a session whose calls alternate between two shapes
//! builds the execution plans of all its layers again in each call. A session for each shape builds them once.

use crate::traits::ModelError;

/// Shape of an input.
type Shape = [usize; 4];

/// Most shapes that have a session. Beyond it the session whose last call is longest ago is freed: photos of a rare format
/// would keep theirs for good.
const MOST_SHAPES: usize = 64;

/// Sessions by the shape of their input.
pub(super) struct Shapes<S> {
    is_one_each: bool,
    /// The one of the last call comes last.
    kept: Vec<Kept<S>>,
}

struct Kept<S> {
    /// `None` where it takes any shape, or was not called yet.
    shape: Option<Shape>,
    session: S,
}

impl<S> Kept<S> {
    fn fits(&self, wanted: Option<Shape>) -> bool {
        self.shape.is_none() || self.shape == wanted
    }
}

impl<S> Shapes<S> {
    /// One session takes all shapes.
    pub fn one_for_all(session: S) -> Self {
        Self { is_one_each: false, kept: vec![Kept { shape: None, session }] }
    }

    /// Each shape has its session; the first shape gets this one.
    pub fn one_each(session: S) -> Self {
        Self { is_one_each: true, kept: vec![Kept { shape: None, session }] }
    }

    /// A session for what does not depend on the shape; `None` after a lack of memory.
    pub fn first(&self) -> Option<&S> {
        Some(&self.kept.first()?.session)
    }

    /// Frees all sessions but the one for this shape, where each shape has its own.
    pub fn keep_only(&mut self, shape: Shape) {
        let wanted = self.is_one_each.then_some(shape);
        self.kept.retain(|kept| kept.fits(wanted));
    }

    /// Returns the session for a shape, which `create` makes where there is none. Where that lacks memory all others are freed,
    /// and it is tried again.
    ///
    /// # Errors
    /// Those of `create`.
    pub fn borrow(
        &mut self,
        shape: Shape,
        create: impl Fn() -> Result<S, ModelError>,
    ) -> Result<&mut S, ModelError> {
        let wanted = self.is_one_each.then_some(shape);
        match self.kept.iter().rposition(|kept| kept.fits(wanted)) {
            Some(index) => self.kept[index..].rotate_left(1),
            None => {
                let session = match create() {
                    Err(ModelError::OutOfMemory { .. }) => {
                        self.kept.clear();
                        create()?
                    }
                    created => created?,
                };
                if self.kept.len() == MOST_SHAPES {
                    self.kept.remove(0);
                }
                self.kept.push(Kept { shape: wanted, session });
            }
        }
        // One was moved to the end, or added there.
        let last = self.kept.len() - 1;
        self.kept[last].shape = wanted;
        Ok(&mut self.kept[last].session)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Sessions are numbers, in the order of their creation.
    struct Factory(Cell<u32>);

    impl Factory {
        fn create(&self) -> Result<u32, ModelError> {
            self.0.set(self.0.get() + 1);
            Ok(self.0.get())
        }
    }

    fn shape(items: usize) -> Shape {
        [items, 3, 48, 160]
    }

    #[test]
    fn each_shape_has_its_session_and_the_first_one_gets_what_there_is() {
        let factory = Factory(Cell::new(0));
        let mut sessions = Shapes::one_each(0);
        let mut borrow = |items| *sessions.borrow(shape(items), || factory.create()).unwrap();
        assert_eq!([8, 16, 8, 16, 1, 8].map(&mut borrow), [0, 1, 0, 1, 2, 0]);
        let mut one = Shapes::one_for_all(7);
        let borrowed = [8, 16, 1].map(|items| *one.borrow(shape(items), || factory.create()).unwrap());
        assert_eq!((borrowed, factory.0.get()), ([7; 3], 2));
    }

    #[test]
    fn of_too_many_shapes_the_one_that_waited_longest_loses_its_session() {
        let factory = Factory(Cell::new(0));
        let mut sessions = Shapes::one_each(0);
        let mut borrow = |items| *sessions.borrow(shape(items), || factory.create()).unwrap();
        for items in 1..=MOST_SHAPES {
            borrow(items);
        }
        assert_eq!(borrow(1), 0, "it is called again, and kept");
        let new = borrow(MOST_SHAPES + 1);
        assert_eq!([borrow(1), borrow(3), borrow(MOST_SHAPES + 1)], [0, 2, new]);
        assert!(borrow(2) > new, "it was freed");
        assert_eq!(sessions.kept.len(), MOST_SHAPES);
    }

    #[test]
    fn where_memory_is_lacking_the_others_are_freed_and_it_is_tried_again() {
        let mut sessions = Shapes::one_each(0);
        sessions.borrow(shape(1), || Ok(0)).unwrap();
        sessions.borrow(shape(2), || Ok(1)).unwrap();
        let attempts = Cell::new(0);
        let create = || {
            attempts.set(attempts.get() + 1);
            let lacking = ModelError::OutOfMemory { name: "net".into(), detail: "no".into() };
            if attempts.get() == 1 { Err(lacking) } else { Ok(9) }
        };
        assert_eq!(*sessions.borrow(shape(3), create).unwrap(), 9);
        assert_eq!((attempts.get(), sessions.kept.len()), (2, 1));
        sessions.borrow(shape(4), || Ok(5)).unwrap();
        sessions.keep_only(shape(4));
        assert_eq!((sessions.first(), sessions.kept.len()), (Some(&5), 1));
        let lost = || Err(ModelError::Device { device: "cuda".into(), detail: "lost".into() });
        assert!(sessions.borrow(shape(6), lost).is_err());
        assert_eq!(*sessions.borrow(shape(4), lost).unwrap(), 5);
    }

    #[test]
    fn after_a_lack_of_memory_the_shape_that_is_asked_for_next_keeps_its_session() {
        let factory = Factory(Cell::new(0));
        let mut sessions = Shapes::one_each(0);
        sessions.borrow(shape(4), || factory.create()).unwrap();
        sessions.borrow(shape(16), || factory.create()).unwrap();
        sessions.keep_only(shape(4));
        assert_eq!((sessions.first(), sessions.kept.len()), (Some(&0), 1));
        assert_eq!(*sessions.borrow(shape(4), || factory.create()).unwrap(), 0);
        assert_eq!(factory.0.get(), 1, "that for 16 items is the last one that was made");
        let mut one = Shapes::one_for_all(7);
        one.borrow(shape(16), || factory.create()).unwrap();
        one.keep_only(shape(4));
        assert_eq!(one.first(), Some(&7));
    }
}
