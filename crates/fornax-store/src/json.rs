//! JSON objects whose keys are all different.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// The entries of an object, in order. JSON leaves open what a second entry of one name means; here it is an error.
pub(crate) fn unique<'de, T, D>(deserializer: D) -> Result<Vec<(String, T)>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct Entries<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
        type Value = Vec<(String, T)>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let (mut entries, mut names) = (Vec::new(), BTreeSet::new());
            while let Some((name, value)) = map.next_entry::<String, T>()? {
                if !names.insert(name.clone()) {
                    return Err(A::Error::custom(format!("two entries are called {name}")));
                }
                entries.push((name, value));
            }
            Ok(entries)
        }
    }
    deserializer.deserialize_map(Entries(PhantomData))
}
