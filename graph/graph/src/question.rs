// SPDX-License-Identifier: MIT
//! What the graph alone can't decide: which wait to compare with, which edge to follow (Argus,
//! InteractiveSlice and section 5.4).

use serde::Serialize;

/// A possible answer. What is null does not apply: the way to stop has no vertex.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Choice {
    pub vertex: Option<u32>,
    pub tid: Option<u32>,
    pub thread: Option<String>,
    /// ns; of a baseline the wait's.
    pub start: Option<u64>,
    pub dur: Option<u64>,
    /// How it caused what is asked about; of a baseline, how the wait ended.
    pub edge: Option<&'static str>,
    /// Of a baseline: who ended the wait.
    pub by_tid: Option<u32>,
    pub by_thread: Option<String>,
    /// Call sites where it blocks in the end, innermost first.
    pub stack: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// Which wait went as it should.
    Baseline,
    /// Which cause to follow, or whether to stop.
    Link,
}

/// The choices; the first is the rule's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Question {
    pub topic: Topic,
    /// The vertex that is explained.
    pub vertex: u32,
    pub tid: u32,
    pub thread: String,
    /// When the vertex began, or the wait that is to be compared; ns.
    pub start: u64,
    pub choices: Vec<Choice>,
}

/// A question with its answer: the number of a choice, from 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Asked {
    #[serde(flatten)]
    pub question: Question,
    pub answer: usize,
}

/// Decides by rule, or by answers that were given before.
#[derive(Debug)]
pub struct Guide<'a> {
    /// `None`: by rule. Numbers of choices, from 1, in the order of the questions.
    answers: Option<&'a [usize]>,
    pub asked: Vec<Asked>,
}

impl<'a> Guide<'a> {
    pub fn new(answers: Option<&'a [usize]>) -> Guide<'a> {
        Guide {
            answers,
            asked: Vec::new(),
        }
    }

    /// Whether a user was asked about a vertex, and so has decided.
    pub fn was_asked(&self, vertex: u32) -> bool {
        let mut asked = self.asked.iter();
        asked.any(|asked| asked.question.vertex == vertex)
    }

    /// Index of the choice. A question that was asked before keeps its answer.
    ///
    /// # Errors
    /// The question, when there is no answer to it, or none that it offers.
    pub fn choose(&mut self, question: Question) -> Result<usize, Box<Question>> {
        let Some(answers) = self.answers else {
            return Ok(0);
        };
        let before = self.asked.iter().find(|asked| asked.question == question);
        if let Some(asked) = before {
            return Ok(asked.answer - 1);
        }
        match answers.get(self.asked.len()) {
            Some(&answer) if (1..=question.choices.len()).contains(&answer) => {
                self.asked.push(Asked { question, answer });
                Ok(answer - 1)
            }
            _ => Err(Box::new(question)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(vertex: u32) -> Question {
        Question {
            topic: Topic::Link,
            vertex,
            tid: 1,
            thread: String::new(),
            start: 0,
            choices: vec![Choice::default(); 2],
        }
    }

    #[test]
    fn answers_are_taken_in_order_and_a_question_is_asked_once() {
        let mut guide = Guide::new(Some(&[2, 1]));
        let answers = [1, 1, 2].map(|vertex| guide.choose(question(vertex)).ok());
        assert_eq!(answers, [Some(1), Some(1), Some(0)]);
        assert_eq!(guide.asked.len(), 2);
        assert_eq!(guide.choose(question(3)), Err(Box::new(question(3))));
    }

    #[test]
    fn what_is_not_offered_is_no_answer() {
        for answer in [0, 3] {
            assert!(Guide::new(Some(&[answer])).choose(question(1)).is_err());
        }
    }

    #[test]
    fn by_rule_nothing_is_asked() {
        let mut guide = Guide::new(None);
        assert_eq!(guide.choose(question(1)), Ok(0));
        assert_eq!(guide.asked, []);
    }
}
