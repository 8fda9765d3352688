//! Tables of objects that come and go, such as connections.

use std::collections::HashMap;
use std::hash::Hash;

/// Removes an entry. A table that once was large, and of which at most an eighth is in use now,
/// becomes smaller, so that thousands of ended connections leave no memory behind.
pub fn remove<K: Eq + Hash, V>(map: &mut HashMap<K, V>, key: &K) -> Option<V> {
    let value = map.remove(key);
    shrink(map);
    value
}

/// Makes a table smaller if at most an eighth of it is in use.
pub(crate) fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.len() < map.capacity() / 8 {
        map.shrink_to(2 * map.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shrinks_when_its_entries_go() {
        let mut map: HashMap<u32, [u64; 8]> = HashMap::new();
        for id in 0..10_000 {
            map.insert(id, [0; 8]);
        }
        for id in 0..9_990 {
            assert!(remove(&mut map, &id).is_some());
        }
        assert!(map.capacity() < 200, "{}", map.capacity());
        assert_eq!(map.len(), 10);
        for id in 9_990..10_000 {
            assert!(remove(&mut map, &id).is_some());
        }
        assert_eq!(remove(&mut map, &0), None);
    }

    #[test]
    fn a_small_table_is_left_alone() {
        let mut map = HashMap::from([(1, 1)]);
        let capacity = map.capacity();
        remove(&mut map, &1);
        assert_eq!(map.capacity(), capacity);
    }
}
