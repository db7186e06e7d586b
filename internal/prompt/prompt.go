// Package prompt turns the block identities of a recorded turn into the prompt that is sent:
// text or token ids, exact to the token, without a tokenizer and without holding the body.
//
// A block becomes text built from words that are each exactly one token with a leading space
// and never merge with a neighbour, so that n words are n tokens. The text of a block depends
// on its trace and its identity alone: the same block gives the same bytes everywhere and
// always, and different blocks of a trace differ in their first words. What is sent is
// written while it is sent.
//
// The messages of a prompt follow the rules of the AgentX client (AIPerf, SemiAnalysis fork,
// weka_synth_buf.py at 08ec068, 2026-08): system, user, assistant, user and so on; an assistant
// message is made of whole blocks; tokens behind the last full block live for one turn. The
// tokens of all messages sum to the recorded count, and the longest common prefix of two
// consecutive prompts of a stream is the recorded block prefix.
//
// The chat template adds tokens of its own. Learn works them out from what the server counted
// for a few probes, and a Builder that is given them shortens the text by as much, at places
// that stay where they are from turn to turn.
package prompt
