package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// checkBilingual looks for the other language. In a folder every page x.md has a page x_zh.md and
// the other way round, and the Chinese one is in Chinese; a page that is named has its
// counterpart; any other file is a text, such as that of a pull request, that holds both.
func (l *linter) checkBilingual() error {
	for _, root := range l.in.Bilingual {
		st, err := os.Stat(root)
		if err != nil {
			return fmt.Errorf("%s: %w", root, err)
		}
		if !st.IsDir() && filepath.Ext(root) != ".md" {
			if err := l.checkText(root); err != nil {
				return err
			}
			continue
		}
		pages, err := walkFiles(root, ".md")
		if err != nil {
			return fmt.Errorf("%s: %w", root, err)
		}
		for _, p := range pages {
			if err := l.checkPage(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *linter) checkText(file string) error {
	if err := l.readWaivers(file); err != nil {
		return err
	}
	data, err := readFile(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	english, chinese := languages(string(data))
	switch {
	case !chinese:
		l.add(Pos{file, 1, 1}, "bilingual", "the text has no Chinese", "add the Chinese version")
	case !english:
		l.add(Pos{file, 1, 1}, "bilingual", "the text has no English", "add the English version")
	}
	return nil
}

func (l *linter) checkPage(page string) error {
	if err := l.readWaivers(page); err != nil {
		return err
	}
	base := strings.TrimSuffix(page, ".md")
	if !strings.HasSuffix(base, "_zh") {
		if _, err := os.Stat(base + "_zh.md"); err != nil {
			l.add(Pos{page, 1, 1}, "bilingual", "the page has no Chinese version", "add "+filepath.Base(base)+"_zh.md")
		}
		return nil
	}
	if _, err := os.Stat(strings.TrimSuffix(base, "_zh") + ".md"); err != nil {
		l.add(Pos{page, 1, 1}, "bilingual", "the page has no English version", "add "+filepath.Base(strings.TrimSuffix(base, "_zh"))+".md")
	}
	data, err := readFile(page)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	if _, chinese := languages(string(data)); !chinese {
		l.add(Pos{page, 1, 1}, "bilingual", "the page is not in Chinese", "translate it")
	}
	return nil
}

// languages says whether a text holds English words and Chinese characters: four in a row that
// are words or two characters that are Han.
func languages(text string) (english, chinese bool) {
	words, han := 0, 0
	for _, w := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) }) {
		latin := true
		for _, r := range w {
			if unicode.Is(unicode.Han, r) {
				han++
			}
			latin = latin && r < 0x250
		}
		if latin && len(w) > 1 {
			words++
		}
	}
	return words >= 4, han >= 2
}
