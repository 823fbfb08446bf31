//! Computes the home shard of a run by rendezvous hashing over the shards of a generation.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Serialize};

use ferrata_store::{Error, ErrorKind, Result, RunKey};

/// The maximum length of a shard's name. Every error of the shard contains the name.
const MAX_NAME: usize = 64;

/// The names of the shards, and the generations, oldest first. A generation lists the shards over which new runs are spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardMap {
    pub(crate) names: Vec<String>,
    /// Indices into `names`. No generation is empty.
    generations: Vec<Vec<usize>>,
}

/// The generations with the names of their shards, in the form in which each shard stores them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Generations(pub(crate) Vec<Vec<String>>);

impl ShardMap {
    pub(crate) fn new(names: Vec<String>, generations: &[Vec<String>]) -> Result<Self> {
        for (index, name) in names.iter().enumerate() {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_plain) {
                return refuse(format!(
                    "the shard name {name:?} is invalid; use 1 to {MAX_NAME} of A-Z a-z 0-9 . _ -"
                ));
            }
            if names[..index].contains(name) {
                return refuse(format!("two shards are named `{name}`; use a unique name for each shard"));
            }
        }
        if generations.is_empty() {
            return refuse("the map has no generation; add at least one");
        }
        let mut indexed = Vec::with_capacity(generations.len());
        for (number, generation) in generations.iter().enumerate() {
            let mut shards = Vec::with_capacity(generation.len());
            for name in generation {
                let Some(index) = names.iter().position(|known| known == name) else {
                    return refuse(format!(
                        "generation {number} names the shard `{name}`, which has no store; add its store"
                    ));
                };
                if shards.contains(&index) {
                    return refuse(format!("generation {number} names the shard `{name}` twice; remove one"));
                }
                shards.push(index);
            }
            if shards.is_empty() {
                return refuse(format!("generation {number} has no shard; name at least one"));
            }
            indexed.push(shards);
        }
        if let Some(idle) =
            (0..names.len()).find(|index| !indexed.iter().any(|shards| shards.contains(index)))
        {
            return refuse(format!(
                "the shard `{}` is in no generation; add it to a generation",
                names[idle]
            ));
        }
        Ok(Self { names, generations: indexed })
    }

    /// Returns the shards in which a run may be, in the order in which they became its home, and its current home.
    ///
    /// If another map begins with the same generations, its list begins with the same shards. So two processes agree even if only one of them knows
    /// the newest generations.
    pub(crate) fn places(&self, run: &RunKey) -> RunPlaces {
        let mut places = RunPlaces { shards: Vec::with_capacity(1), home: 0 };
        for generation in &self.generations {
            let home = self.home(run, generation);
            places.home = places.shards.iter().position(|known| *known == home).unwrap_or_else(|| {
                places.shards.push(home);
                places.shards.len() - 1
            });
        }
        places
    }

    /// Returns the shard with the highest weight for the run. This is "highest random weight" or rendezvous hashing (D. Thaler and C. Ravishankar,
    /// "Using Name-Based Mappings to Increase Hit Rates", IEEE/ACM Transactions on Networking 6(1), 1998). A shard that is added takes runs evenly
    /// from all other shards, and no run moves between the other shards.
    fn home(&self, run: &RunKey, generation: &[usize]) -> usize {
        let weight = |index: &usize| (weight(&self.names[*index], run), &self.names[*index]);
        // No generation is empty, because `new` checks this.
        generation.iter().copied().max_by_key(weight).unwrap_or_default()
    }

    /// Returns the first shard of the first generation, which all processes know.
    pub(crate) fn first_shard(&self) -> usize {
        // Every map has a generation, and none is empty, because `new` checks this.
        self.generations.first().and_then(|generation| generation.first()).copied().unwrap_or_default()
    }

    pub(crate) fn generations(&self) -> Generations {
        let named = |shards: &Vec<usize>| shards.iter().map(|index| self.names[*index].clone()).collect();
        Generations(self.generations.iter().map(named).collect())
    }
}

/// The shards in which a run may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunPlaces {
    /// The shards, each listed once. There is at least one.
    pub(crate) shards: Vec<usize>,
    /// The index in `shards` of the run's home by the newest generation.
    pub(crate) home: usize,
}

impl RunPlaces {
    /// Returns the shard of the run if there is only one possible shard.
    pub(crate) fn only(&self) -> Option<usize> {
        match self.shards[..] {
            [shard] => Some(shard),
            _ => None,
        }
    }

    /// Returns a number for this set of shards. It does not depend on their order, and is at least `shards`, so it differs from the numbers of
    /// single shards.
    pub(crate) fn combined_part(&self, shards: usize) -> u64 {
        let mut sorted = self.shards.clone();
        sorted.sort_unstable();
        let mut hasher = DefaultHasher::new();
        sorted.hash(&mut hasher);
        hasher.finish().max(shards as u64)
    }

    /// Returns the index of a shard in the list.
    pub(crate) fn position(&self, shard: usize) -> Option<usize> {
        self.shards.iter().position(|known| *known == shard)
    }

    /// Returns the shards, the most likely one first.
    pub(crate) fn likely(&self) -> impl Iterator<Item = usize> {
        let home = self.shards[self.home];
        std::iter::once(home).chain(self.shards.iter().rev().copied().filter(move |shard| *shard != home))
    }
}

fn weight(shard: &str, run: &RunKey) -> u64 {
    let mut hasher = blake3::Hasher::new();
    // None of the three texts contains a zero byte, so no two keys are hashed as the same bytes.
    for text in [shard, run.tenant.as_str(), run.run.as_str()] {
        hasher.update(text.as_bytes()).update(&[0]);
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first)
}

fn refuse<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::Invalid, message).with_operation("store.sharded"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrata_store::RunId;

    fn map(generations: &[&str]) -> ShardMap {
        let generations: Vec<Vec<String>> =
            generations.iter().map(|shards| shards.chars().map(String::from).collect()).collect();
        let mut names = generations.concat();
        names.sort();
        names.dedup();
        ShardMap::new(names, &generations).unwrap()
    }

    fn runs() -> impl Iterator<Item = RunKey> {
        (0..3_000).map(|n| RunKey::from(RunId::new(format!("run-{n}")).unwrap()))
    }

    #[test]
    fn joining_shard_takes_share_without_other_moves() {
        let map = map(&["abc", "abcd"]);
        let mut taken = 0;
        for run in runs() {
            let places = map.places(&run);
            let now = places.shards[places.home];
            assert!(now == 3 || places.only() == Some(now), "{run}: {places:?}");
            taken += usize::from(now == 3);
        }
        // Four standard deviations around a quarter.
        assert!((655..=845).contains(&taken), "{taken}");
    }

    #[test]
    fn older_map_shards_lead_newer_map_shards() {
        let generations = ["ab", "abc", "c", "ab", "abcd"];
        for run in runs() {
            let longest = map(&generations).places(&run).shards;
            for known in 1..generations.len() {
                // The shards have other indices in a map with fewer shards.
                let older = map(&generations[..known]);
                let names = older
                    .places(&run)
                    .shards
                    .iter()
                    .map(|shard| older.names[*shard].clone())
                    .collect::<Vec<_>>();
                let first = longest.iter().map(|shard| ["a", "b", "c", "d"][*shard]).collect::<Vec<_>>();
                assert_eq!(names, first[..names.len()], "{run} with {known} generations");
            }
        }
    }

    /// Guarantees: SHARD-3.
    #[test]
    fn home_shards_are_stable_across_versions() {
        // Stored data depends on this value: if it changed, no run would be found.
        let map = map(&["abc"]);
        let home: Vec<usize> = runs().take(12).map(|run| map.places(&run).shards[0]).collect();
        assert_eq!(home, [0, 1, 1, 2, 1, 2, 1, 1, 2, 1, 2, 2]);
    }
}
