// SPDX-License-Identifier: MIT
//! Postdominators and loops against definitions applied literally, on random graphs,
//! and against worked examples.

use flagfinder_code::{Graph, Loops, Postdominators};
use std::collections::BTreeSet;

/// Nodes reachable from `start` when `without` is taken out.
fn reachable(edges: &[(u32, u32)], start: u32, without: Option<u32>) -> BTreeSet<u32> {
    let mut seen = BTreeSet::new();
    let mut work = vec![start];
    while let Some(node) = work.pop() {
        if Some(node) != without && seen.insert(node) {
            let next = edges.iter().filter(|(from, _)| *from == node);
            work.extend(next.map(|(_, to)| *to));
        }
    }
    seen
}

struct Random(u64);
impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % u64::from(limit)) as u32
    }
}

fn random_edges(random: &mut Random) -> Vec<(u32, u32)> {
    let nodes = 2 + random.below(12);
    let count = 1 + random.below(2 * nodes);
    (0..count)
        .map(|_| (random.below(nodes), random.below(nodes)))
        .collect()
}

#[test]
fn postdominators_are_dominators_of_the_reversed_graph() {
    let mut random = Random(0xfeed_beef_0bad_cafe);
    for _ in 0..2000 {
        let mut edges = random_edges(&mut random);
        let top = edges.iter().map(|&(a, b)| a.max(b)).max().unwrap_or(0);
        let exit = top + 1;
        // Every node may leave through one of two exits, so no region is endless.
        for node in 0..=top {
            if random.below(2) == 0 || node == top {
                edges.push((node, exit));
            }
        }
        let reaching: Vec<u32> = (0..=exit)
            .filter(|&n| reachable(&edges, n, None).contains(&exit))
            .collect();
        edges.retain(|(a, b)| reaching.contains(a) && reaching.contains(b));
        let graph = Graph::new(0, edges.iter().copied());
        if !graph.nodes().contains(&exit) || !reaching.contains(&0) {
            continue;
        }
        let tree = Postdominators::new(&graph, &[]);
        for &b in graph.nodes() {
            for &a in graph.nodes() {
                let expected = !reachable(&edges, b, Some(a)).contains(&exit);
                assert_eq!(
                    tree.postdominates(&graph, a, b),
                    expected,
                    "{a} pdom {b} in {edges:?}"
                );
            }
        }
    }
}

#[test]
fn a_diamond_joins_at_its_end() {
    let graph = Graph::new(10, [(10, 20), (10, 30), (20, 40), (30, 40), (40, 50)]);
    let tree = Postdominators::new(&graph, &[]);
    assert!(tree.postdominates(&graph, 40, 10) && tree.postdominates(&graph, 40, 20));
    assert!(!tree.postdominates(&graph, 20, 10) && !tree.postdominates(&graph, 40, 50));
}

#[test]
fn an_endless_loop_still_has_postdominators() {
    // 1 -> 2 -> 3 -> 2, and a side door 1 -> 4.
    let graph = Graph::new(1, [(1, 2), (2, 3), (3, 2), (1, 4)]);
    let tree = Postdominators::new(&graph, &[]);
    assert!(tree.postdominates(&graph, 3, 2));
    let after_1 = [2, 3, 4].map(|node| tree.postdominates(&graph, node, 1));
    assert_eq!(after_1, [false; 3], "two ways that never meet");
}

#[test]
fn named_exits_count_beside_final_nodes() {
    let graph = Graph::new(1, [(1, 2), (2, 3)]);
    assert!(Postdominators::new(&graph, &[]).postdominates(&graph, 2, 1));
    assert!(!Postdominators::new(&graph, &[1]).postdominates(&graph, 2, 1));
}

#[test]
fn natural_loops_nest() {
    let edges = [(1, 2), (2, 3), (3, 3), (3, 4), (4, 2), (4, 5)];
    let graph = Graph::new(1, edges);
    let loops = Loops::new(&graph);
    assert_eq!(loops.all().len(), 2);
    let outer = &loops.all()[0];
    assert_eq!(
        (&outer.headers[..], &outer.nodes[..]),
        (&[2][..], &[2, 3, 4][..])
    );
    assert_eq!(
        (&outer.back_edges[..], &outer.exits[..]),
        (&[(4, 2)][..], &[(4, 5)][..])
    );
    let inner = &loops.all()[1];
    assert_eq!(
        (&inner.nodes[..], inner.parent, inner.depth),
        (&[3][..], Some(0), 1)
    );
}

#[test]
fn two_doors_make_a_loop_irreducible() {
    let graph = Graph::new(1, [(1, 2), (1, 3), (2, 3), (3, 2), (3, 4)]);
    let loops = Loops::new(&graph);
    assert_eq!(loops.all().len(), 1);
    assert_eq!(loops.all()[0].headers, [2, 3]);
}

#[test]
fn a_trace_that_begins_inside_a_loop_still_shows_it() {
    let graph = Graph::new(9, [(9, 8), (8, 9)]);
    let loops = Loops::new(&graph);
    assert_eq!(loops.all()[0].headers, [9]);
}

#[test]
fn every_cycle_is_in_a_loop_and_nothing_else_is() {
    let mut random = Random(0x0dd0_ba11_5eed_0001);
    for _ in 0..2000 {
        let edges = random_edges(&mut random);
        let graph = Graph::new(0, edges.iter().copied());
        let loops = Loops::new(&graph);
        for &node in graph.nodes() {
            let next = edges.iter().filter(|(from, _)| *from == node);
            let cyclic = next
                .into_iter()
                .any(|&(_, to)| reachable(&edges, to, None).contains(&node));
            assert_eq!(
                loops.all().iter().any(|found| found.contains(node)),
                cyclic,
                "{node} in {edges:?}"
            );
        }
        for found in loops.all() {
            // Without its headers' incoming edges a natural loop has no cycle through them;
            // from any header every node of the loop can be reached inside it.
            let inside: Vec<(u32, u32)> = edges
                .iter()
                .copied()
                .filter(|&(a, b)| found.contains(a) && found.contains(b))
                .collect();
            for &header in &found.headers {
                let seen: Vec<u32> = reachable(&inside, header, None).into_iter().collect();
                assert_eq!(seen, found.nodes, "{edges:?}");
            }
        }
    }
}

#[test]
fn deep_graphs_need_no_deep_stack() {
    let length = 200_000;
    let edges = (0..length).map(|n| (n, n + 1)).chain([(length, 0)]);
    let graph = Graph::new(0, edges);
    assert_eq!(Loops::new(&graph).all()[0].nodes.len(), length as usize + 1);
    assert!(Postdominators::new(&graph, &[]).postdominates(&graph, length, 0));
}
