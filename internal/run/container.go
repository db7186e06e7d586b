package run

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/spec"
)

// A Box runs the processes of a deployment in containers of one image. Every process has its
// working folder, with the files that were written for it, at the same path inside. It builds
// command lines and runs none.
type Box struct {
	Runtime string   // none, docker, podman, apptainer, pyxis or enroot
	Mounts  []string // HOST:CONTAINER or HOST:CONTAINER:ro
	Cache   string   // folder of imported images, of pyxis, enroot and apptainer
	Image   string
	Digest  string // of the image, "sha256:" and 64 hex digits; "" while nobody knows it
	Renew   int64  // imports of before this time, seconds since 1970, are made again; 0 keeps all
	Token   string // of what is run, so that names are its own
	CPUs    string // list of those that docker and podman keep the containers on; "" is all
	GPUs    string // whose devices are passed: "nvidia", "amd" or "" for none
}

// NewBox is how a cluster's containers run a job.
func NewBox(c *spec.Container, runtime string, j *Job, d *engine.Deployment, token string) *Box {
	b := &Box{Runtime: runtime, Mounts: c.Mounts, Cache: c.Cache, Image: j.Point.Image, Digest: digestIn(j.Point.Image), Renew: c.Renew, Token: token}
	switch {
	case d.Simulated || j.Recipe.Device == "cpu":
	case j.Verdict != nil && strings.HasPrefix(j.Verdict.GPU, "mi"):
		b.GPUs = "amd"
	default:
		b.GPUs = "nvidia"
	}
	return b
}

// imageFile is an image's name as a file's: readable, and with a digest of the whole name, so that
// two images never share one.
func imageFile(image string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, image)
	sum := sha256.Sum256([]byte(image))
	return plain[max(0, len(plain)-80):] + "-" + hex.EncodeToString(sum[:6])
}

// digestIn is the digest in a text, the last one; "" where there is none.
func digestIn(text string) string {
	all := digests.FindAllString(text, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

var digests = regexp.MustCompile("sha256:[0-9a-f]{64}")

// file is the image's name as a file's, with the digest of what it names where that is known: a tag
// that moves is another image.
func (b *Box) file() string {
	name := imageFile(b.Image)
	if _, hex, ok := strings.Cut(b.Digest, ":"); ok {
		name += "-" + hex[:min(12, len(hex))]
	}
	return name
}

// Resolve is a shell script that prints the digest that the image's tag names now, or nothing where
// no tool at hand says it; "" where the name has the digest or is a file's. docker and podman say
// what they have; where they have nothing, or are to renew it, they pull.
func (b *Box) Resolve() string {
	if b.Digest != "" && b.Renew == 0 || b.Image == "" || strings.HasPrefix(b.Image, "/") {
		return ""
	}
	image := engine.Quote(b.Image)
	switch b.Runtime {
	case "docker", "podman":
		look := b.Runtime + ` image inspect --format '{{join .RepoDigests " "}}' ` + image
		if b.Renew > 0 {
			return b.Runtime + " pull --quiet " + image + " >&2 || exit 1\n" + look + "\n"
		}
		return look + " 2>/dev/null || { " + b.Runtime + " pull --quiet " + image + " >&2 && " + look + "; }\n"
	case "pyxis", "enroot", "apptainer":
		if b.Digest != "" {
			return ""
		}
		remote := engine.Quote("docker://" + b.Image)
		return "skopeo inspect --format '{{.Digest}}' " + remote + " || crane digest " + image + "\n"
	}
	return ""
}

// resolved takes what Resolve printed.
func (b *Box) resolved(out string, err error, where string, say func(string)) {
	if d := digestIn(out); d != "" && err == nil {
		b.Digest = d
		return
	}
	if say != nil && b.Digest == "" {
		say(fmt.Sprintf("no digest of %s is known on %s (%v): an image that its tag names later is not told from it, and an import of it is kept; name it with @sha256:", b.Image, where, err))
	}
}

// name is that of a process's container; it holds the image, so that another image never finds
// the root of this one.
func (b *Box) name(p *engine.Process) string {
	sum := sha256.Sum256([]byte(b.Image + b.Digest))
	return fmt.Sprintf("weir-%s-%s-%s", b.Token, p.Name, hex.EncodeToString(sum[:6]))
}

// mounts are the fleet's and the process's own folder.
func (b *Box) mounts(p *engine.Process) []string {
	if p.Dir == "" {
		return b.Mounts
	}
	return append(b.Mounts[:len(b.Mounts):len(b.Mounts)], p.Dir+":"+p.Dir)
}

// Imported is the file that an image is imported to, "" where the runtime keeps its own.
func (b *Box) Imported() string {
	switch {
	case b.Cache == "":
		return ""
	case b.Runtime == "pyxis" || b.Runtime == "enroot":
		return filepath.Join(b.Cache, b.file()+".sqsh")
	case b.Runtime == "apptainer":
		return filepath.Join(b.Cache, b.file()+".sif")
	}
	return ""
}

// Import is a shell script that imports the image into the cache, if it is not there: under a
// lock in the cache's folder, so that of several jobs one imports and the others wait, and with a
// name of its own until it is whole. It is "" where nothing is to be imported.
func (b *Box) Import() string {
	file := b.Imported()
	if file == "" {
		return ""
	}
	pull := `enroot import --output "$part" ` + engine.Quote("docker://"+b.enrootName())
	if b.Runtime == "apptainer" {
		pull = `apptainer pull "$part" ` + engine.Quote("docker://"+b.Image)
	}
	return `set -eu
file=` + engine.Quote(file) + `
fresh() { [ -s "$file" ] && [ "$(stat -c %Y "$file")" -ge ` + strconv.FormatInt(b.Renew, 10) + ` ]; }
! fresh || exit 0
mkdir -p "$(dirname "$file")"
exec 9>"$file.lock"
flock -w 7200 9 || { echo "weir: $file.lock is held for more than two hours" >&2; exit 1; }
! fresh || exit 0
part="$file.part"
rm -f "$part"
` + pull + `
[ -s "$part" ] || { echo "weir: the import made no $part" >&2; exit 1; }
touch "$part"
mv "$part" "$file"
`
}

// enrootName writes an image as enroot does: the registry stands before "#".
func (b *Box) enrootName() string {
	if host, rest, ok := strings.Cut(b.Image, "/"); ok && strings.ContainsAny(host, ".:") {
		return host + "#" + rest
	}
	return b.Image
}

// Step are the arguments of pyxis for the srun that starts a process.
func (b *Box) Step(p *engine.Process) []string {
	if b.Runtime != "pyxis" && b.Runtime != "enroot" {
		return nil
	}
	image := b.Imported()
	if image == "" {
		image = b.enrootName()
	}
	args := []string{"--container-image=" + image, "--container-name=weir-" + b.file(), "--no-container-mount-home", "--container-writable"}
	if m := b.mounts(p); len(m) > 0 {
		args = append(args, "--container-mounts="+strings.Join(m, ","))
	}
	if p.Dir != "" {
		args = append(args, "--container-workdir="+p.Dir)
	}
	return args
}

// Command wraps a command so that it runs in a container of a runtime that is a command itself;
// pyxis and enroot are the scheduler's affair and leave it as it is.
func (b *Box) Command(p *engine.Process, argv []string) []string {
	var cmd []string
	switch b.Runtime {
	case "apptainer":
		cmd = []string{"apptainer", "exec", "--writable-tmpfs"}
		switch b.GPUs {
		case "nvidia":
			cmd = append(cmd, "--nv")
		case "amd":
			cmd = append(cmd, "--rocm")
		}
		for _, m := range b.mounts(p) {
			cmd = append(cmd, "--bind", m)
		}
		if p.Dir != "" {
			cmd = append(cmd, "--pwd", p.Dir)
		}
		image := b.Imported()
		switch {
		case image != "":
		case strings.HasPrefix(b.Image, "/"):
			image = b.Image
		default:
			image = "docker://" + b.Image
		}
		cmd = append(cmd, image)
	case "docker", "podman":
		cmd = []string{b.Runtime, "run", "--rm", "--init", "--name", b.name(p), "--network", "host", "--ipc", "host", "--privileged",
			"--ulimit", "memlock=-1", "--ulimit", "stack=67108864", "--shm-size", "128g", "--entrypoint", ""}
		switch {
		case b.GPUs == "amd":
			cmd = append(cmd, "--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video")
		case b.GPUs == "nvidia" && b.Runtime == "docker":
			cmd = append(cmd, "--gpus", "all")
		case b.GPUs == "nvidia":
			cmd = append(cmd, "--device", "nvidia.com/gpu=all")
		}
		if b.CPUs != "" {
			cmd = append(cmd, "--cpuset-cpus", b.CPUs)
		}
		for _, m := range b.mounts(p) {
			cmd = append(cmd, "--volume", m)
		}
		if p.Dir != "" {
			cmd = append(cmd, "--workdir", p.Dir)
		}
		cmd = append(cmd, b.Image)
	}
	return append(cmd, argv...)
}

// Clean are the command that removes what may be left of a process's container, and one that
// prints its name as long as it is there; nil for runtimes whose containers end with their
// process.
func (b *Box) Clean(p *engine.Process) (remove, list []string) {
	if b.Runtime != "docker" && b.Runtime != "podman" {
		return nil, nil
	}
	return []string{b.Runtime, "rm", "--force", b.name(p)},
		[]string{b.Runtime, "ps", "--all", "--filter", "name=^" + b.name(p) + "$", "--format", "{{.Names}}"}
}
