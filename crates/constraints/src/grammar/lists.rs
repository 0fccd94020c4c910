//! Many lists of numbers in two arrays.

/// Lists of numbers. The lists are numbered from 0.
#[derive(Debug)]
pub struct Lists {
    /// The end of each list in `all`, after a zero.
    ends: Vec<u32>,
    all: Vec<u32>,
}

impl Default for Lists {
    fn default() -> Self {
        Self {
            ends: vec![0],
            all: Vec::new(),
        }
    }
}

impl Lists {
    /// Returns an empty collection of lists, with memory reserved for `n_lists` lists and `n`
    /// numbers in total.
    pub fn with_room(n_lists: usize, n: usize) -> Self {
        let mut ends = Vec::with_capacity(n_lists + 1);
        ends.push(0);
        Self {
            ends,
            all: Vec::with_capacity(n),
        }
    }

    /// Returns `n` lists. Each pair is the index of a list and a number to append to that list.
    /// `pairs` is called twice. Pairs whose index is `n` or more are ignored.
    pub fn of<I: Iterator<Item = (u32, u32)>>(n: usize, pairs: impl Fn() -> I) -> Self {
        // The numbers of list `i` are counted at `i + 2`. After the prefix sum, list `i` begins at
        // `ends[i + 1]`.
        let mut ends = vec![0_u32; n + 2];
        let mut n_all = 0;
        // `for_each` is faster than a loop for chained and flattened iterators.
        pairs().for_each(|(list, _)| {
            if let Some(count) = ends.get_mut(list as usize + 2) {
                *count += 1;
                n_all += 1;
            }
        });
        let mut sum = 0;
        for end in &mut ends {
            sum += *end;
            *end = sum;
        }
        let mut all = vec![0; n_all];
        pairs().for_each(|(list, number)| {
            if let Some(next) = ends.get_mut(list as usize + 1)
                && let Some(place) = all.get_mut(*next as usize)
            {
                *place = number;
                *next += 1;
            }
        });
        ends.truncate(n + 1);
        Self { ends, all }
    }

    /// Returns the number of lists.
    pub fn len(&self) -> usize {
        self.ends.len() - 1
    }

    /// True if there are no lists.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the numbers of a list; none if there is no such list.
    #[inline]
    pub fn get(&self, list: u32) -> &[u32] {
        let ends = self.ends.get(list as usize..).unwrap_or_default();
        match *ends {
            [from, to, ..] => self.all.get(from as usize..to as usize).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Returns all lists, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.len() as u32).map(|list| self.get(list))
    }

    /// Returns the numbers of the open list.
    pub fn open(&self) -> &[u32] {
        let from = self.ends.last().copied().unwrap_or(0);
        self.all.get(from as usize..).unwrap_or_default()
    }

    /// Adds a number to the open list.
    pub fn add(&mut self, number: u32) {
        self.all.push(number);
    }

    /// Ends the open list, and opens the next one.
    pub fn end(&mut self) {
        self.ends.push(self.all.len() as u32);
    }

    /// Returns the size of the lists in bytes.
    pub fn bytes(&self) -> usize {
        (self.ends.len() + self.all.len()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests;
