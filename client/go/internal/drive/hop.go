package main

import (
	"archive/zip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	posenc "github.com/posenc/posenc/client/go"
	"github.com/posenc/posenc/client/go/posencv1"
)

// hop repositions keys of bfloat16, [1, 16, 2, 64], from one file to another.
func hop(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("hop: needs TARGET IN OUT SHIFT")
	}
	shift, err := strconv.ParseInt(args[3], 10, 64)
	if err != nil {
		return err
	}
	keys, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	client, err := posenc.NewClient(args[0])
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	rope, err := client.Rope(ctx, posenc.Spec(&posencv1.RopeSpec{Pairing: posenc.HalfSplit}))
	if err != nil {
		return err
	}
	k := posenc.Bytes(posenc.DtypeBFloat16, keys, 1, 16, 2, 64)
	if err := rope.Reposition(ctx, posenc.BSHD, posenc.ShiftBy(shift), k); err != nil {
		return err
	}
	return os.WriteFile(args[2], keys, 0o644)
}

// zipModule writes a module's files in the format of Go's module proxies.
func zipModule(args []string) error {
	if len(args) != 5 {
		return fmt.Errorf("zip: needs MODULE VERSION DIR LICENSE OUT")
	}
	module, version, dir, license, out := args[0], args[1], args[2], args[3], args[4]
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	archive := zip.NewWriter(file)
	add := func(path, name string) error {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		entry, err := archive.Create(module + "@" + version + "/" + name)
		if err == nil {
			_, err = entry.Write(content)
		}
		return err
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return add(path, filepath.ToSlash(name))
	})
	if err == nil {
		err = add(license, "LICENSE")
	}
	if err == nil {
		err = archive.Close()
	}
	if err == nil {
		err = file.Close()
	}
	return err
}
