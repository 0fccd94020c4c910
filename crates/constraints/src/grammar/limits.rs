//! Limits on the size of a grammar and on the work that it causes. In most servers a grammar comes
//! from a client, so every size is bounded. A grammar that exceeds a limit is refused or dead, and
//! a message gives the reason.

/// The maximum number of bytes of a grammar's text.
pub const MAX_TEXT: usize = 8 << 20;
/// The maximum number of repetitions of one `{m,n}`, and the largest product of nested repetitions,
/// in a text that llama.cpp can read. This is llama.cpp's own limit.
pub const MAX_HOST_REPETITIONS: u64 = 2000;
/// The maximum number of repetitions of one `{m,n}` in a text that llama.cpp refuses because of
/// their number, and in a regular expression.
pub const MAX_REPETITIONS: u64 = 1_000_000;
/// The maximum number of elements of all rules. The item of a counted repetition counts once.
pub const MAX_ELEMENTS: usize = 1 << 22;
/// The maximum number of rules, including those that are generated for groups and repetitions.
pub const MAX_RULES: usize = 1 << 20;
/// The maximum number of different character classes.
pub const MAX_CLASSES: usize = 1 << 20;
/// The maximum number of different sequences of elements.
pub const MAX_SEQUENCES: usize = 1 << 22;
/// The maximum number of bytes of an element `<text>`, including the brackets.
pub const MAX_TOKEN_TEXT: usize = 1024;
/// The maximum number of stacks that are visited for one character, including those that references
/// lead to.
pub const MAX_STEP: usize = 1 << 18;
/// The maximum number of steps, mainly visits of stacks, that one call may take. A call accepts a
/// token, filters an array, or makes a mask.
pub const MAX_WORK: usize = 1 << 23;
/// The maximum number of bytes that one call may add to the tables.
pub const MAX_CALL_BYTES: usize = 64 << 20;
/// The maximum number of bytes of the masks of one grammar. Beyond that, all of them are dropped.
pub const MAX_MASK_BYTES: usize = 48 << 20;
/// The maximum number of elements below the tops of all stacks at one position, shared elements
/// counted once.
pub const MAX_STACK: usize = 1 << 15;
/// The maximum number of bytes of one of a sampler's tables: one for tracking its text and, if the
/// grammar has counted repetitions, one for each band of the vocabulary. If the tables exceed this
/// limit on average, and also twice the size of the states that the text's position needs, they are
/// rebuilt.
pub const MAX_STATE_BYTES: usize = 8 << 20;
/// The maximum number of bytes of idle states that are kept for later samplers of the same grammar.
pub const MAX_IDLE_BYTES: usize = 4 << 20;
/// The maximum number of bytes that all grammars of the cache occupy together.
pub const MAX_CACHE_BYTES: usize = 128 << 20;
/// The maximum number of vocabularies whose data is kept.
pub const MAX_VOCABULARIES: usize = 8;
/// The maximum number of grammars of the cache.
pub const MAX_CACHED: usize = 256;

/// The maximum number of tokens that can be taken back.
pub const MAX_ROLLBACK: usize = 1 << 10;
/// The maximum number of bytes of states that are kept for rollback when tables are rebuilt.
pub const MAX_KEPT_BYTES: usize = MAX_STATE_BYTES / 2;
/// The maximum number of bytes of a forced text that are returned.
pub const MAX_FORCED: usize = 1 << 16;

/// The maximum number of bytes of a regular expression.
pub const MAX_PATTERN_TEXT: usize = 1 << 15;
/// The maximum nesting depth of a regular expression.
pub const MAX_PATTERN_DEPTH: u32 = 128;
/// The maximum number of classes of characters in a regular expression, including the ranges in
/// brackets.
pub const MAX_PATTERN_CLASSES: usize = 1 << 12;

/// The maximum number of texts of a choice.
pub const MAX_CHOICES: usize = 1 << 20;

/// The maximum number of tags of a description.
pub const MAX_TAGS: usize = 1 << 12;
/// The maximum number of bytes of a begin or end tag.
pub const MAX_TAG_TEXT: usize = 1 << 10;
/// The maximum number of bytes of all begin and end tags.
pub const MAX_TAG_TEXTS: usize = 1 << 17;

/// The maximum number of bytes of all trigger patterns, or of all trigger words.
pub const MAX_TRIGGER_TEXT: usize = 1 << 20;
/// The maximum number of instructions of all trigger patterns, with repetitions expanded.
pub const MAX_TRIGGER_STATES: usize = 1 << 18;
/// The maximum nesting depth of parentheses in a trigger pattern.
pub const MAX_TRIGGER_DEPTH: usize = 100;
/// The maximum number of steps that one call may take while it waits for a trigger, all patterns
/// together.
pub const MAX_TRIGGER_STEPS: usize = 1 << 22;
/// The maximum number of pending backtracking points in the search for a trigger.
pub const MAX_TRIGGER_WAYS: usize = 1 << 20;
/// The number of bytes that the states of one grammar's trigger patterns may always take.
pub const MIN_TRIGGER_TABLES: usize = 64 << 10;
/// The number of additional bytes that these states may take for each instruction of the patterns.
pub const TRIGGER_TABLES_PER_STATE: usize = 256;
/// The maximum number of bytes that the states of one grammar's trigger patterns may take.
pub const MAX_TRIGGER_TABLES: usize = 4 << 20;
/// The maximum number of bytes of cached trigger patterns, including the states that may be added
/// to them.
pub const MAX_TRIGGER_CACHE: usize = 32 << 20;
/// The maximum number of sets of patterns that are cached.
pub const MAX_TRIGGERS_CACHED: usize = 64;
/// The maximum number of bytes of a text that is searched for a trigger.
pub const MAX_WAITING_TEXT: usize = 256 << 20;

/// The maximum number of bytes of a JSON Schema's text.
pub const MAX_SCHEMA_TEXT: usize = 8 << 20;
/// The maximum nesting depth of a JSON Schema's text.
pub const MAX_SCHEMA_DEPTH: usize = 128;
/// The maximum number of JSON values in a JSON Schema.
pub const MAX_SCHEMA_VALUES: usize = 1 << 20;
/// The maximum length of a chain of references in a JSON Schema, and the maximum number of nested
/// schemas that apply to one value.
pub const MAX_SCHEMA_CHAIN: usize = 100;
/// The maximum number of expressions that compiling a JSON Schema may create: one for each
/// subschema and each constant, and one for each different combination of these.
pub const MAX_SCHEMA_COMBINATIONS: usize = 1 << 16;
/// The maximum number of alternatives for one value of a JSON Schema. The numbers of alternatives
/// in several `anyOf` keywords multiply.
pub const MAX_SCHEMA_WAYS: usize = 1 << 10;
/// The maximum number of elements of the grammar that a JSON Schema becomes.
pub const MAX_SCHEMA_ELEMENTS: usize = 1 << 20;
/// The maximum number of steps that compiling a JSON Schema to a grammar may take. Steps are
/// counted while its keywords are combined, and while the automata of its patterns, names and
/// numbers are built.
pub const MAX_SCHEMA_STEPS: usize = 1 << 25;
/// The maximum number of characters of white space in a row.
pub const MAX_SCHEMA_SPACE: u32 = 64;
/// The maximum number of states of one automaton that is built for a JSON Schema: that of a
/// pattern, of names, of a number, or of an intersection of these.
pub const MAX_AUTOMATON_STATES: usize = 1 << 14;
/// The maximum number of nodes of the nondeterministic automaton of a pattern of a JSON Schema, in
/// which repetitions are expanded. A character takes two nodes.
pub const MAX_SCHEMA_PATTERN: usize = 1 << 14;
/// The maximum nesting depth of groups in a pattern of a JSON Schema.
pub const MAX_SCHEMA_GROUPS: usize = 100;
