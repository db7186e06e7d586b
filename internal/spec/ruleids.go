package spec

// ruleIDs are the ids of the lint rules.
func ruleIDs() []string { return nil }
