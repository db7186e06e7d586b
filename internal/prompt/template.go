package prompt

// Template is what a server's chat template adds to the tokens of the messages: beginning of
// text, role headers, ends of messages, the opening of the answer. The zero value adds nothing.
type Template struct {
	// Fixed is added once to a prompt that begins with a user message, tokens.
	Fixed int64 `json:"fixed"`
	// FixedSystem is added once to a prompt that begins with a system message, its own
	// header included; it differs from Fixed where a template supplies a default system prompt.
	FixedSystem int64 `json:"fixed_system"`
	// User and Assistant are added for every such message.
	User      int64 `json:"user"`
	Assistant int64 `json:"assistant"`
	// Salt is the number of tokens of the salt where it stands.
	Salt int64 `json:"salt"`
	// Text is added once to a plain prompt of /v1/completions: the beginning of text.
	Text int64 `json:"text"`
}

// Overhead is the sum for a prompt of the given messages, the salt not included.
func (t Template) Overhead(roles []Role) int64 {
	o := t.overhead(NoSalt)
	var sum int64
	for i, r := range roles {
		if i == 0 {
			sum += o.fixed(r)
		}
		sum += o.message[r]
	}
	return sum
}

// overhead is a Template as a plan uses it.
type overhead struct {
	system, other int64    // once, by the role of the first message
	message       [3]int64 // by role
	salt          int64
	alternate     bool // a message behind one of its role adds nothing
	saltRole      Role // of the message that carries the salt, if there is one of it
}

func (t Template) overhead(p Placement) overhead {
	o := overhead{system: t.FixedSystem, other: t.Fixed, message: [3]int64{User: t.User, Assistant: t.Assistant}, saltRole: User}
	if p != NoSalt {
		o.salt = t.Salt
	}
	if p == SystemPrefix || p == SystemSuffix {
		o.saltRole = System
	}
	return o
}

func (o overhead) fixed(first Role) int64 {
	if first == System {
		return o.system
	}
	return o.other
}
