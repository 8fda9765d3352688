//! A table that names objects by small numbers. The number of a removed object is used again.

use std::collections::TryReserveError;

/// A table that names objects by small numbers.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab::new()
    }
}

impl<T> Slab<T> {
    /// Creates an empty table.
    pub const fn new() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }

    /// The number that the next [`Slab::insert`] returns.
    pub fn next_index(&self) -> usize {
        self.free.last().copied().unwrap_or(self.slots.len())
    }

    /// Reserves memory for one more object, and for the list entry of its number after its removal.
    ///
    /// # Errors
    /// Fails if there is no memory. Without the reservation, [`Slab::insert`] would end the
    /// process.
    pub fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.slots.try_reserve(1)?;
        self.free.try_reserve(self.slots.len() + 1 - self.free.len())
    }

    /// Inserts an object and returns its number.
    pub fn insert(&mut self, value: T) -> usize {
        let index = self.next_index();
        match self.free.pop() {
            Some(_) => self.slots[index] = Some(value),
            None => {
                self.slots.push(Some(value));
                // Every slot is in use. This reservation makes sure that `remove` needs no memory.
                self.free.reserve(self.slots.len());
            }
        }
        index
    }

    /// The object with this number.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.slots.get_mut(index)?.as_mut()
    }

    /// Removes and returns the object with this number.
    pub fn remove(&mut self, index: usize) -> Option<T> {
        let value = self.slots.get_mut(index)?.take()?;
        self.free.push(index);
        Some(value)
    }

    /// All objects.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }

    /// All objects, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    /// The numbers of all objects.
    pub fn indices(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().enumerate().filter(|(_, slot)| slot.is_some()).map(|(index, _)| index)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut table = Slab::new();
        assert_eq!([table.insert('a'), table.insert('b'), table.insert('c')], [0, 1, 2]);
        assert_eq!(table.remove(1), Some('b'));
        assert!(
            table.remove(1).is_none() && table.get_mut(1).is_none() && table.remove(9).is_none()
        );
        assert_eq!(table.indices().collect::<Vec<_>>(), [0, 2]);
        assert_eq!((table.next_index(), table.insert('d'), table.next_index()), (1, 1, 3));
        assert_eq!(table.get_mut(1), Some(&mut 'd'));
        assert_eq!(table.len(), 3);
    }
}
