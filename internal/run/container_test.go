package run

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/material"
)

// fakeDocker stands in for docker and podman where no container engine runs: it keeps their
// command line, and runs what is to run in the container on this machine, outside of the client's
// process group as a daemon would. A container outlives its client when that is killed.
const fakeDocker = `#!/bin/sh
printf '%s\n' "$*" >>"$FAKE/calls"
case $1 in
run)
  shift
  dir=. name=
  while :; do
    case $1 in
    --name) name=$2; shift 2 ;;
    --workdir) dir=$2; shift 2 ;;
    --rm | --init | --privileged) shift ;;
    --*) shift 2 ;;
    *) break ;;
    esac
  done
  shift
  cd "$dir" || exit 125
  setsid "$@" &
  pid=$!
  echo $pid >"$FAKE/containers/$name"
  trap 'kill -TERM -$pid 2>/dev/null' TERM INT
  wait $pid
  status=$?
  while kill -0 $pid 2>/dev/null; do
    wait $pid
    status=$?
  done
  rm -f "$FAKE/containers/$name"
  exit $status
  ;;
rm)
  [ -z "$STUCK" ] || exit 1
  kill -KILL "-$(cat "$FAKE/containers/$3")" && rm -f "$FAKE/containers/$3"
  ;;
ps)
  name=${4#name=^}
  ls "$FAKE/containers" | grep -x "${name%$}"
  exit 0
  ;;
esac
`

// fakeContainers puts the stand-in on PATH under a name and returns its folder.
func fakeContainers(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "containers"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(fakeDocker), 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("FAKE", dir)
	return dir
}

// runs says whether a process is there and has not ended; nobody may have taken note of its end.
func runs(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// containerPid waits until a container is known and returns the process that runs in it.
func containerPid(t *testing.T, fake, name string) int {
	t.Helper()
	pid := 0
	until(t, "the container "+name, func() bool {
		raw, _ := os.ReadFile(filepath.Join(fake, "containers", name))
		if !strings.HasSuffix(string(raw), "\n") {
			return false
		}
		var err error
		pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
		return err == nil && pid > 1
	})
	return pid
}

// until waits for what other processes do.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// TestContainers runs processes in containers: they find their files by the names that their
// arguments have, and after the stop no container is left, also of one that ignored its end.
func TestContainers(t *testing.T) {
	material.RealTime(t)
	for _, runtime := range []string{"docker", "podman"} {
		t.Run(runtime, func(t *testing.T) {
			fake := fakeContainers(t, runtime)
			box := &Box{Runtime: runtime, Mounts: []string{"/models:/models:ro"}, Image: "lmsysorg/sglang:v0.5.16", Token: "ab12", GPUs: "nvidia"}
			scratch, logs := t.TempDir(), t.TempDir()
			g := newGroup(scratch, logs, box.Command)
			g.clean = box.Clean
			p := shell("unified-0", "trap '' TERM; cat options.yaml; echo $SIZE; while :; do sleep 1; done")
			p.Files, p.Env = map[string]string{"options.yaml": "kv: 7\n"}, []engine.Var{{Name: "SIZE", Value: "3 GB"}}
			if err := g.start(p); err != nil {
				t.Fatal(err)
			}
			log := func() string {
				raw, _ := os.ReadFile(filepath.Join(logs, "unified-0.log"))
				return string(raw)
			}
			until(t, "the container's words", func() bool { return strings.Contains(log(), "kv: 7\n3 GB\n") })
			pid := containerPid(t, fake, box.name(&p))
			if !runs(pid) {
				t.Fatalf("process %d of the container does not run", pid)
			}
			if err := g.stop(300 * time.Millisecond); err != nil {
				t.Error(err)
			}
			until(t, "the end of the container's process", func() bool { return !runs(pid) })
			calls, err := os.ReadFile(filepath.Join(fake, "calls"))
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(scratch, "unified-0")
			gpus := map[string]string{"docker": "--gpus all", "podman": "--device nvidia.com/gpu=all"}[runtime]
			want := fmt.Sprintf("run --rm --init --name %s --network host --ipc host --privileged --ulimit memlock=-1 --ulimit stack=67108864 --shm-size 128g --entrypoint  %s"+
				" --volume /models:/models:ro --volume %s:%s --workdir %s lmsysorg/sglang:v0.5.16 env SIZE=3 GB %s=%s sh -c ", box.name(&p), gpus, dir, dir, dir, marker, g.mark)
			if !strings.HasPrefix(string(calls), want) || !strings.Contains(string(calls), "\nrm --force "+box.name(&p)+"\n") {
				t.Errorf("calls\n%s\nwant\n%s", calls, want)
			}
		})
	}
}

// TestContainerLeft reports a container that cannot be removed.
func TestContainerLeft(t *testing.T) {
	material.RealTime(t)
	fake := fakeContainers(t, "docker")
	t.Setenv("STUCK", "1")
	defer func(d time.Duration) { cleanWait = d }(cleanWait)
	cleanWait = time.Second // of the looking; a command has its own limit
	box := &Box{Runtime: "docker", Image: "i", Token: "t"}
	logs := t.TempDir()
	g := newGroup(t.TempDir(), logs, box.Command)
	g.clean = box.Clean
	p := shell("p", "trap '' TERM; echo up; while :; do sleep 1; done")
	if err := g.start(p); err != nil {
		t.Fatal(err)
	}
	pid := containerPid(t, fake, box.name(&p))
	until(t, "the container", func() bool { raw, _ := os.ReadFile(filepath.Join(logs, "p.log")); return len(raw) > 1 })
	err := g.stop(200 * time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), box.name(&p)+" is still there after its removal") {
		t.Errorf("the stop says %v", err)
	}
	syscall.Kill(-pid, syscall.SIGKILL)
}

// TestBoxCommands are the command lines of runtimes that are not there where tests run.
func TestBoxCommands(t *testing.T) {
	p := &engine.Process{Name: "prefill-0", Dir: "/s/prefill-0"}
	image := "nvcr.io/nvidia/ai:1.2"
	file := imageFile(image)
	for _, c := range []struct {
		box  Box
		step bool
		want string
	}{
		{Box{Runtime: "pyxis", Image: image, Mounts: []string{"/m:/m"}}, true,
			"--container-image=nvcr.io#nvidia/ai:1.2 --container-name=weir-" + file + " --no-container-mount-home --container-writable --container-mounts=/m:/m,/s/prefill-0:/s/prefill-0 --container-workdir=/s/prefill-0"},
		{Box{Runtime: "enroot", Image: image, Cache: "/c"}, true,
			"--container-image=/c/" + file + ".sqsh --container-name=weir-" + file + " --no-container-mount-home --container-writable --container-mounts=/s/prefill-0:/s/prefill-0 --container-workdir=/s/prefill-0"},
		{Box{Runtime: "pyxis", Image: image}, false, "serve --port 1"},
		{Box{Runtime: "none", Image: image}, false, "serve --port 1"},
		{Box{Runtime: "docker", Image: image}, true, ""},
		{Box{Runtime: "apptainer", Image: image, Mounts: []string{"/m:/m"}, GPUs: "amd"}, false,
			"apptainer exec --writable-tmpfs --rocm --bind /m:/m --bind /s/prefill-0:/s/prefill-0 --pwd /s/prefill-0 docker://nvcr.io/nvidia/ai:1.2 serve --port 1"},
		{Box{Runtime: "apptainer", Image: image, Cache: "/c", GPUs: "nvidia"}, false,
			"apptainer exec --writable-tmpfs --nv --bind /s/prefill-0:/s/prefill-0 --pwd /s/prefill-0 /c/" + file + ".sif serve --port 1"},
		{Box{Runtime: "apptainer", Image: "/images/a.sif"}, false, "apptainer exec --writable-tmpfs --bind /s/prefill-0:/s/prefill-0 --pwd /s/prefill-0 /images/a.sif serve --port 1"},
	} {
		got := c.box.Command(p, []string{"serve", "--port", "1"})
		if c.step {
			got = c.box.Step(p)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%+v:\n%s, want\n%s", c.box, s, c.want)
		}
	}
	if a, b := imageFile("r/a_b:1"), imageFile("r/a/b:1"); a == b {
		t.Errorf("two images have one name %s", a)
	}
}

// TestImportOnce imports one image from several jobs at once: one does, the others wait for it
// and find it. What a killed import left is not taken for an image.
func TestImportOnce(t *testing.T) {
	for runtime, pull := range map[string]string{"pyxis": "enroot", "apptainer": "apptainer"} {
		t.Run(runtime, func(t *testing.T) {
			dir := t.TempDir()
			// It writes its argument that ends with ".part" slowly.
			script := "#!/bin/sh\necho \"$*\" >>" + dir + "/calls\nfor f; do case $f in *.part) echo half >\"$f\"; sleep 0.3; echo whole >>\"$f\" ;; esac; done\n"
			if err := os.WriteFile(filepath.Join(dir, pull), []byte(script), 0o777); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			box := &Box{Runtime: runtime, Image: "nvcr.io/nvidia/ai:1.2", Cache: filepath.Join(dir, "shared", "images")}
			if err := os.MkdirAll(box.Cache, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(box.Imported()+".part", []byte("half\n"), 0o666); err != nil {
				t.Fatal(err)
			}
			var all []*exec.Cmd
			var outs [3]bytes.Buffer
			for i := range outs {
				cmd := exec.Command("bash", "-c", box.Import())
				cmd.Stdout, cmd.Stderr = &outs[i], &outs[i]
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				all = append(all, cmd)
			}
			for i, cmd := range all {
				if err := cmd.Wait(); err != nil {
					t.Errorf("%v: %s", err, outs[i].String())
				}
			}
			got, err := os.ReadFile(box.Imported())
			if err != nil || string(got) != "half\nwhole\n" {
				t.Errorf("the image is %q, %v", got, err)
			}
			calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
			name := map[string]string{"pyxis": "docker://nvcr.io#nvidia/ai:1.2", "apptainer": "docker://nvcr.io/nvidia/ai:1.2"}[runtime]
			if strings.Count(string(calls), "\n") != 1 || !strings.Contains(string(calls), name) {
				t.Errorf("imports:\n%s", calls)
			}
			left, _ := filepath.Glob(filepath.Join(box.Cache, "*"))
			if want := []string{box.Imported(), box.Imported() + ".lock"}; !slices.Equal(left, want) {
				t.Errorf("left %v", left)
			}
			// An import that fails says so and leaves no image.
			if err := os.WriteFile(filepath.Join(dir, pull), []byte("#!/bin/sh\necho no such image >&2; exit 1\n"), 0o777); err != nil {
				t.Fatal(err)
			}
			other := &Box{Runtime: runtime, Image: "absent:1", Cache: box.Cache}
			out, err := exec.Command("bash", "-c", other.Import()).CombinedOutput()
			if _, statErr := os.Stat(other.Imported()); err == nil || statErr == nil || !strings.Contains(string(out), "no such image") {
				t.Errorf("an import that fails: %v, %s", err, out)
			}
		})
	}
}
