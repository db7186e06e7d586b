package run

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/spec"
)

// tools puts scripts on PATH, in a folder that they know as $HERE, and returns it.
func tools(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("HERE", dir)
	return dir
}

const digestA, digestB = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

// ask runs what a box asks of the tools at hand.
func ask(t *testing.T, b *Box) (said string) {
	t.Helper()
	if script := b.Resolve(); script != "" {
		out, err := exec.Command("bash", "-c", script).CombinedOutput()
		b.resolved(string(out), err, "n1", func(s string) { said = s })
	}
	return said
}

// TestDigestNames: a tag that names another image has another container and another import, by what
// the runtime or the registry says at the time; a name that holds a digest asks nobody.
func TestDigestNames(t *testing.T) {
	p := &engine.Process{Name: "unified-0"}
	for _, runtime := range []string{"docker", "podman", "pyxis", "apptainer"} {
		t.Run(runtime, func(t *testing.T) {
			inspect := "[ \"$1\" = image ] && [ \"$2\" = inspect ] && echo \"r/engine@$(cat $HERE/now)\"\n"
			dir := tools(t, map[string]string{"docker": inspect, "podman": inspect, "skopeo": "cat $HERE/now\n"})
			names := map[string]bool{}
			for _, now := range []string{digestA, digestB, digestA} {
				if err := os.WriteFile(filepath.Join(dir, "now"), []byte(now), 0o666); err != nil {
					t.Fatal(err)
				}
				b := &Box{Runtime: runtime, Image: "r/engine:nightly", Cache: "/images", Token: "t"}
				if said := ask(t, b); b.Digest != now || said != "" {
					t.Errorf("the digest is %q, want %s (%s)", b.Digest, now, said)
				}
				names[b.name(p)+" "+b.Imported()+" "+strings.Join(b.Step(p), " ")] = true
				if file := b.Imported(); file != "" && !strings.Contains(file, "-"+now[7:19]+".") {
					t.Errorf("%s is imported as %s", now, file)
				}
			}
			if len(names) != 2 {
				t.Errorf("two images of one tag have %d names", len(names))
			}
			fixed := NewBox(&spec.Container{}, runtime, &Job{Point: &spec.Point{Image: "r/engine:1@" + digestA}, Recipe: &engine.Recipe{}}, &engine.Deployment{}, "t")
			if fixed.Digest != digestA || fixed.Resolve() != "" {
				t.Errorf("a name with its digest: %q, asks %q", fixed.Digest, fixed.Resolve())
			}
		})
	}
}

// TestDigestUnknown: where no tool says it the log does, and the names are those of the tag.
func TestDigestUnknown(t *testing.T) {
	fail := "echo no >&2; exit 1\n"
	tools(t, map[string]string{"skopeo": fail, "crane": fail})
	b := &Box{Runtime: "pyxis", Image: "r/engine:nightly", Cache: "/images"}
	if said := ask(t, b); b.Digest != "" || !strings.Contains(said, "no digest of r/engine:nightly is known on n1") {
		t.Errorf("digest %q, said %q", b.Digest, said)
	}
	if want := "/images/" + imageFile(b.Image) + ".sqsh"; b.Imported() != want {
		t.Errorf("imported as %s, want %s", b.Imported(), want)
	}
}

// TestImportRenewed: an import of before the time that a run names is made again, once; without one
// it stays.
func TestImportRenewed(t *testing.T) {
	dir := tools(t, map[string]string{"enroot": "echo pull >>$HERE/calls; echo image >\"$3\"\n"})
	b := &Box{Runtime: "pyxis", Image: "r/engine:nightly", Cache: filepath.Join(dir, "images")}
	pulls := func() int {
		t.Helper()
		if out, err := exec.Command("bash", "-c", b.Import()).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		raw, _ := os.ReadFile(filepath.Join(dir, "calls"))
		return strings.Count(string(raw), "pull")
	}
	pulls()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(b.Imported(), old, old); err != nil {
		t.Fatal(err)
	}
	if n := pulls(); n != 1 {
		t.Errorf("%d imports without being asked for a new one", n)
	}
	b.Renew = time.Now().Add(-time.Minute).Unix()
	if n := pulls(); n != 2 {
		t.Errorf("%d imports when older ones are not to be used, want 2", n)
	}
	if n := pulls(); n != 2 {
		t.Errorf("%d imports when the import is new", n)
	}
	d := &Box{Runtime: "docker", Image: "r/engine:1", Renew: 1}
	if !strings.HasPrefix(d.Resolve(), "docker pull ") {
		t.Errorf("docker is to renew an image and runs %q", d.Resolve())
	}
}

// TestImportEnds: an import that hangs ends at its limit with class node, and with it what it runs.
func TestImportEnds(t *testing.T) {
	dir := tools(t, map[string]string{"srun": "echo $$ >$HERE/pid; exec sleep 1000\n"})
	defer func(d time.Duration) { importLimit = d }(importLimit)
	js := &JobSpec{Cluster: &spec.Cluster{Slurm: &spec.Slurm{}}}
	b := &Box{Runtime: "pyxis", Image: "r/engine:1", Cache: filepath.Join(dir, "images")}
	importLimit = time.Second
	err := js.importImage(context.Background(), b, "n1", "")
	var f *Failure
	if !errors.As(err, &f) || f.Class != "node" || !strings.Contains(f.Reason, "r/engine:1 on n1: it did not end within 1s") {
		t.Errorf("an import that hangs: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := js.importImage(ctx, b, "n1", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted import: %v", err)
	}
}
