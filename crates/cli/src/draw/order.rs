//! The order of the items in a layer, chosen so that few edges cross.

/// Number of passes over the order and the positions. More passes make no picture visibly better.
pub(super) const SWEEPS: usize = 6;

/// Maximum number of connections of two neighbors that may be swapped. The time of a trial is proportional to the product of both numbers.
const MOST_JOINED: usize = 1_000;

/// For each item, the connected items in the layer above and in the layer below.
type LayerNeighbors = [Vec<Vec<usize>>; 2];

/// Orders the items of each layer. Each item is placed in the middle of its connected items, and then neighbors are swapped if this reduces
/// crossings. The order with the fewest crossings is returned.
pub(super) fn ordered(layer: &[usize], joined: &LayerNeighbors) -> Vec<Vec<usize>> {
    let count = layer.iter().max().map_or(0, |last| last + 1);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (item, &at) in layer.iter().enumerate() {
        rows[at].push(item);
    }
    let mut order = vec![0_usize; layer.len()];
    rows.iter().for_each(|row| number(row, &mut order));
    let mut best = (crossings(&rows, joined, &order), rows.clone());
    for sweep in 0..2 * SWEEPS {
        let side = sweep % 2;
        let mut arrange = |row: &mut Vec<usize>| {
            // Compute in thousandths, so that all machines round in the same way.
            row.sort_by_key(|&item| {
                let joined = &joined[side][item];
                let sum: usize = joined.iter().map(|&other| order[other] * 1_000).sum();
                sum.checked_div(joined.len()).unwrap_or(order[item] * 1_000)
            });
            number(row, &mut order);
        };
        if side == 0 {
            rows.iter_mut().for_each(&mut arrange);
        } else {
            rows.iter_mut().rev().for_each(&mut arrange);
        }
        rows.iter_mut().for_each(|row| swap(row, joined, &mut order));
        let found = crossings(&rows, joined, &order);
        if found < best.0 {
            best = (found, rows.clone());
        }
        if best.0 == 0 {
            break;
        }
    }
    best.1
}

fn number(row: &[usize], order: &mut [usize]) {
    row.iter().enumerate().for_each(|(at, &item)| order[item] = at);
}

/// Swaps neighbors if this reduces the number of crossings.
fn swap(row: &mut [usize], joined: &LayerNeighbors, order: &mut [usize]) {
    for at in 1..row.len() {
        let (left, right) = (row[at - 1], row[at]);
        let (mut now, mut then) = (0, 0);
        for side in joined {
            let (of_left, of_right) = (&side[left], &side[right]);
            if of_left.len() * of_right.len() > MOST_JOINED {
                continue;
            }
            for one in of_left {
                now += of_right.iter().filter(|&&other| order[other] < order[*one]).count();
                then += of_right.iter().filter(|&&other| order[other] > order[*one]).count();
            }
        }
        if then < now {
            row.swap(at - 1, at);
            (order[left], order[right]) = (at, at - 1);
        }
    }
}

/// Counts the crossings between neighboring layers. The crossings are the inversions of the lower ends, in the order of the upper ends.
fn crossings(rows: &[Vec<usize>], joined: &LayerNeighbors, order: &[usize]) -> usize {
    let between = |row: &Vec<usize>| {
        let ends = row.iter().flat_map(|&upper| {
            let mut ends: Vec<usize> = joined[1][upper].iter().map(|&lower| order[lower]).collect();
            ends.sort_unstable();
            ends
        });
        inversions(&mut ends.collect::<Vec<_>>())
    };
    rows.iter().map(between).sum()
}

/// Sorts numbers, and returns the number of inverted pairs before.
fn inversions(numbers: &mut Vec<usize>) -> usize {
    if numbers.len() < 2 {
        return 0;
    }
    let mut right = numbers.split_off(numbers.len() / 2);
    let mut count = inversions(numbers) + inversions(&mut right);
    let (mut merged, mut at) = (Vec::with_capacity(numbers.len() + right.len()), 0);
    for &left in &*numbers {
        while at < right.len() && right[at] < left {
            merged.push(right[at]);
            at += 1;
        }
        count += at;
        merged.push(left);
    }
    merged.extend_from_slice(&right[at..]);
    *numbers = merged;
    count
}
